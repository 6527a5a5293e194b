#include "trainer_core/base/data_paths.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

absl::StatusOr<DataShare> parse_share(std::string_view part) {
  const size_t comma = part.rfind(',');
  if (comma == std::string_view::npos || comma == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", av(part),
        "\" has no weight; several data sets are written \"folder1,0.7;folder2,0.3\""));
  }
  double weight = 0;
  const std::string_view text = part.substr(comma + 1);
  if (!absl::SimpleAtod(av(text), &weight) || !std::isfinite(weight) || weight <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("the weight of ", av(part.substr(0, comma)),
                                                   " is \"", av(text),
                                                   "\", but must be a number above 0"));
  }
  return DataShare{std::string(part.substr(0, comma)), weight};
}

// A single folder may have a comma in its name, unless a number follows it.
bool is_one_folder(std::string_view text) {
  if (text.find(';') != std::string_view::npos) return false;
  const size_t comma = text.rfind(',');
  double ignored = 0;
  return comma == std::string_view::npos || comma == 0 ||
         !absl::SimpleAtod(av(text.substr(comma + 1)), &ignored);
}

absl::Status check_shares(const std::vector<DataShare>& shares) {
  double sum = 0;
  for (const DataShare& share : shares) sum += share.weight;
  if (!std::isfinite(sum)) return absl::InvalidArgumentError("the weights' sum is not finite");
  for (const DataShare& share : shares) {
    if (share.weight * static_cast<double>(kBlendPeriodMax) >= sum) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the weight of %s is %g of a sum of %g, but must be at least a millionth of it",
        share.folder, share.weight, sum));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DataShare>> parse_data_paths(std::string_view text) {
  if (is_one_folder(text)) return std::vector<DataShare>{{std::string(text), 1}};
  std::vector<DataShare> shares;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    auto share = parse_share(part);
    if (!share.ok()) return share.status();
    if (shares.size() == kBlendSourcesMax) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kBlendSourcesMax, " data sets"));
    }
    shares.push_back(*std::move(share));
  }
  if (auto status = check_shares(shares); !status.ok()) return status;
  return shares;
}

std::string data_paths_text(const std::vector<DataShare>& shares) {
  if (shares.size() == 1) return shares.front().folder;
  std::string text;
  for (const DataShare& share : shares)
    absl::StrAppend(&text, text.empty() ? "" : ";", share.folder, ",",
                    absl::StrFormat("%.17g", share.weight));
  return text;
}

}  // namespace muster::trainer
