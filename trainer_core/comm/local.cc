#include "trainer_core/comm/local.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/collective_trace.h"
#include "trainer_core/comm/local_meeting.h"
#include "trainer_core/comm/reduce.h"

namespace muster::trainer {
namespace {

class LocalGroup : public ProcessGroup {
 public:
  LocalGroup(std::shared_ptr<LocalMeeting> meeting, int rank, ProgressWriter* page,
             std::string name)
      : meeting_(std::move(meeting)), rank_(rank), trace_(page, std::move(name)) {}
  ~LocalGroup() override { meeting_->break_up(rank_, absl::StrCat("rank ", rank_, " is gone")); }

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }

  absl::Status all_reduce(std::span<float> data, std::string_view name) override {
    return collective(CollectiveKind::kAllReduce, name, data, [&] {
      // Only this rank touches its slice, of every rank's buffer; rank 0's takes the sum.
      const Slice slice = slice_of(data.size(), rank_, size());
      const std::span<float> sum = meeting_->buffer(0).subspan(slice.offset, slice.count);
      for (int r = 1; r < size(); ++r) add_to(sum, meeting_->buffer(r).data() + slice.offset);
      for (int r = 1; r < size(); ++r) {
        std::copy(sum.begin(), sum.end(),
                  meeting_->buffer(r).begin() + static_cast<ptrdiff_t>(slice.offset));
      }
    });
  }

  absl::Status all_gather(std::span<const float> input, std::span<float> output,
                          std::string_view name) override {
    MUSTER_CHECK(output.size() == input.size() * ranks()) << "all_gather into " << output.size();
    return collective(CollectiveKind::kAllGather, name, readable(input), [&] {
      for (size_t r = 0; r < ranks(); ++r)
        copy_from(r, 0, output.subspan(r * input.size(), input.size()));
    });
  }

  absl::Status reduce_scatter(std::span<const float> input, std::span<float> output,
                              std::string_view name) override {
    MUSTER_CHECK(input.size() == output.size() * ranks()) << "reduce_scatter of " << input.size();
    return collective(CollectiveKind::kReduceScatter, name, readable(input),
                      [&] { sum_ranks(static_cast<size_t>(rank_) * output.size(), output); });
  }

  absl::Status all_to_all(std::span<const float> input, std::span<float> output,
                          std::string_view name) override {
    MUSTER_CHECK(input.size() == output.size() && input.size() % ranks() == 0)
        << "all_to_all of " << input.size();
    const size_t slice = input.size() / ranks();
    return collective(CollectiveKind::kAllToAll, name, readable(input), [&] {
      for (size_t r = 0; r < ranks(); ++r) {
        copy_from(r, static_cast<size_t>(rank_) * slice, output.subspan(r * slice, slice));
      }
    });
  }

  absl::Status broadcast(std::span<float> data, int root, std::string_view name) override {
    return collective(CollectiveKind::kBroadcast, name, data, [&] {
      if (rank_ != root) copy_from(static_cast<size_t>(root), 0, data);
    });
  }

  absl::Status send(std::span<const float> data, int to, std::string_view name) override {
    return trace_.run(CollectiveKind::kSend, name, data.size_bytes(),
                      [&] { return meeting_->send(rank_, to, data); });
  }
  absl::Status recv(std::span<float> data, int from, std::string_view name) override {
    return trace_.run(CollectiveKind::kRecv, name, data.size_bytes(),
                      [&] { return meeting_->recv(from, rank_, data); });
  }
  absl::Status barrier(std::string_view name) override {
    return collective(CollectiveKind::kBarrier, name, {}, [] {});
  }

  void abort() override { meeting_->break_up(rank_, absl::StrCat("rank ", rank_, " aborted")); }

 private:
  size_t ranks() const { return static_cast<size_t>(meeting_->size()); }

  // Peers only read what a collective declares as input.
  static std::span<float> readable(std::span<const float> input) {
    return {const_cast<float*>(input.data()), input.size()};
  }

  template <class Move>
  absl::Status collective(CollectiveKind kind, std::string_view name, std::span<float> buffer,
                          Move&& move) {
    return trace_.run(kind, name, buffer.size_bytes(), [&]() -> absl::Status {
      if (auto status = meeting_->arrive(rank_, buffer); !status.ok()) return status;
      for (int r = 0; r < size(); ++r) {
        MUSTER_CHECK(meeting_->buffer(r).size() == buffer.size())
            << "rank " << r << " entered \"" << name << "\" with another size";
      }
      move();
      meeting_->leave();
      return absl::OkStatus();
    });
  }

  void copy_from(size_t rank, size_t offset, std::span<float> out) const {
    const std::span<float> from =
        meeting_->buffer(static_cast<int>(rank)).subspan(offset, out.size());
    std::copy(from.begin(), from.end(), out.begin());
  }

  void sum_ranks(size_t offset, std::span<float> out) const {
    copy_from(0, offset, out);
    for (int r = 1; r < size(); ++r) add_to(out, meeting_->buffer(r).data() + offset);
  }

  std::shared_ptr<LocalMeeting> meeting_;
  int rank_;
  CollectiveTrace trace_;
};

}  // namespace

LocalWorld::LocalWorld(int size, std::chrono::milliseconds timeout)
    : meeting_(std::make_shared<LocalMeeting>(size, timeout)) {
  MUSTER_CHECK(size >= 1) << "a group of " << size;
}
LocalWorld::~LocalWorld() = default;

std::unique_ptr<ProcessGroup> LocalWorld::join(int rank, ProgressWriter* page, std::string name) {
  MUSTER_CHECK(rank >= 0 && rank < meeting_->size())
      << "rank " << rank << " of " << meeting_->size();
  return std::make_unique<LocalGroup>(meeting_, rank, page, std::move(name));
}

}  // namespace muster::trainer
