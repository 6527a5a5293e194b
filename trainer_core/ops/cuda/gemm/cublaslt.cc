// cuBLASLt, opened with dlopen. Its matrices are column-major: a row-major c = op(a) op(b) is its
// c' = op(b)' op(a)', over the same memory.
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <type_traits>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/base/memory_plan.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"
#include "trainer_core/ops/cuda/gemm/cublaslt_algorithms.h"
#include "trainer_core/ops/cuda/gemm/matrix_library.h"

namespace muster::trainer::cuda {
namespace {

// Pointers to the library's functions, with the types that the header declares.
struct Library {
  void* handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtMatmulDescCreate) product_create = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) product_set = nullptr;
  decltype(&cublasLtMatmulDescDestroy) product_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
};

// Never closed: the library has threads and handlers of its own.
absl::StatusOr<Library> open_library() {
  Library library;
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  library.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) return absl::NotFoundError(dlerror());
  std::string missing;
  const auto get = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library.handle, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  };
  get(library.create, "cublasLtCreate");
  get(library.destroy, "cublasLtDestroy");
  get(library.version, "cublasLtGetVersion");
  get(library.status_name, "cublasLtGetStatusName");
  get(library.product_create, "cublasLtMatmulDescCreate");
  get(library.product_set, "cublasLtMatmulDescSetAttribute");
  get(library.product_destroy, "cublasLtMatmulDescDestroy");
  get(library.layout_create, "cublasLtMatrixLayoutCreate");
  get(library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  get(library.preference_create, "cublasLtMatmulPreferenceCreate");
  get(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  get(library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  get(library.choose, "cublasLtMatmulAlgoGetHeuristic");
  get(library.check_algorithm, "cublasLtMatmulAlgoCheck");
  get(library.multiply, "cublasLtMatmul");
  if (!missing.empty()) return absl::NotFoundError(absl::StrCat(name, " has no ", missing));
  return library;
}

// The largest power of two that divides the address, capped at the alignment that all buffers of a
// plan have. The position of a buffer in the plan, which remat policies change, must not decide
// which algorithm computes a GEMM, and with it the last bits of the result.
uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | kBufferAlignment;
  return static_cast<uint32_t>(address & (~address + 1));
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

struct Alignments {
  uint32_t a, b, c, bias, pre;
};

using Epilogue = LibraryEpilogue::Kind;

bool has_bias(Epilogue kind) { return kind == Epilogue::kBias || kind == Epilogue::kGeluBias; }
bool has_pre(Epilogue kind) { return kind != Epilogue::kNone && kind != Epilogue::kBias; }

cublasLtEpilogue_t epilogue_of(Epilogue kind) {
  switch (kind) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}
// The epilogue's name in keys of the algorithm file.
const char* name_of(Epilogue kind) {
  switch (kind) {
    case Epilogue::kNone:
      return "";
    case Epilogue::kBias:
      return ",bias";
    case Epilogue::kGelu:
      return ",gelu";
    case Epilogue::kGeluBias:
      return ",gelu_bias";
    case Epilogue::kGeluGradient:
      return ",dgelu";
  }
  return "";
}

const char* operand_name(const LibraryGemm& p) {
  if (p.operand_type == DType::kBf16) return "bf16";
  return p.tf32 ? "tf32" : "fp32";
}

LibraryAnswer no_algorithm() {
  return {.kind = LibraryAnswer::Kind::kNone, .why = "it has no algorithm for it"};
}

class CublasLt final : public MatrixLibrary {
 public:
  CublasLt(const Library& library, const std::string& device, const std::string& path)
      : library_(library),
        prefix_(absl::StrCat("cublasLt ", library.version(), "|", device, "|")),
        algorithms_(path) {
    check(library_.create(&handle_), "cublasLtCreate");
  }
  ~CublasLt() override {
    for (auto& [key, prepared] : prepared_) release(prepared);
    (void)library_.destroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  LibraryAnswer multiply(cudaStream_t stream, const LibraryGemm& p, void* workspace,
                         size_t workspace_bytes) override {
    Prepared& prepared = prepare(p, workspace_bytes);
    if (!prepared.usable) return no_algorithm();
    set_pointers(prepared, p.epilogue);
    const float one = 1, add = p.accumulate ? 1 : 0;
    // The library's a is our b.
    const cublasStatus_t status = library_.multiply(
        handle_, prepared.product, &one, p.b, prepared.a, p.a, prepared.b, &add, p.c, prepared.c,
        p.c, prepared.c, &prepared.algorithm, workspace, workspace_bytes, stream);
    // Nothing was started: the chosen algorithm does not support the problem.
    prepared.usable = status != CUBLAS_STATUS_NOT_SUPPORTED;
    if (!prepared.usable) return no_algorithm();
    check(status, "cublasLtMatmul");
    return {};
  }

 private:
  // Named from the library's view: a is (m, k), b (k, n), c (m, n), column-major.
  struct Prepared {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    size_t workspace_bytes = 0;
    bool usable = false;
  };

  void check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    const std::string what = absl::StrCat(call, " ends with ", library_.status_name(status));
    MUSTER_CHECK(fails_capture(what)) << what;
  }

  static std::string text_of(const LibraryGemm& p, const Alignments& aligned,
                             size_t workspace_bytes) {
    std::string text =
        absl::StrCat(p.m, ",", p.n, ",", p.k, p.transpose_a ? ",t" : ",n",
                     p.transpose_b ? "t" : "n", p.accumulate ? ",add," : ",set,", operand_name(p),
                     ",", p.type == DType::kBf16 ? "bf16," : "fp32,", aligned.a, ",", aligned.b,
                     ",", aligned.c, ",", workspace_bytes);
    // No suffix without an epilogue, as in files of earlier versions.
    const Epilogue kind = p.epilogue.kind;
    if (kind != Epilogue::kNone)
      absl::StrAppend(&text, name_of(kind), ",", aligned.bias, ",", aligned.pre);
    return text;
  }

  Prepared& prepare(const LibraryGemm& p, size_t workspace_bytes) {
    const Alignments aligned{.a = alignment_of(p.b),
                             .b = alignment_of(p.a),
                             .c = alignment_of(p.c),
                             .bias = alignment_of(p.epilogue.bias),
                             .pre = alignment_of(p.epilogue.pre)};
    const std::string key = text_of(p, aligned, workspace_bytes);
    if (const auto found = prepared_.find(key); found != prepared_.end()) return found->second;
    if (prepared_.size() >= kPreparedMax) forget();
    Prepared prepared = describe(p);
    if (!recall(prefix_ + key, workspace_bytes, prepared))
      choose(prefix_ + key, aligned, workspace_bytes, prepared);
    return prepared_.emplace(key, prepared).first->second;
  }

  Prepared describe(const LibraryGemm& p) const {
    Prepared result;
    const auto compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(library_.product_create(&result.product, compute, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(result.product, CUBLASLT_MATMUL_DESC_TRANSA, operation(p.transpose_b));
    set(result.product, CUBLASLT_MATMUL_DESC_TRANSB, operation(p.transpose_a));
    // A row-major matrix (rows, columns) is a column-major one of (columns, rows), with `columns`
    // as leading dimension.
    const auto layout = [&](cublasLtMatrixLayout_t& to, DType dtype, int64_t rows,
                            int64_t columns) {
      check(library_.layout_create(&to, type_of(dtype), static_cast<uint64_t>(columns),
                                   static_cast<uint64_t>(rows), columns),
            "cublasLtMatrixLayoutCreate");
    };
    layout(result.a, p.operand_type, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
    layout(result.b, p.operand_type, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
    layout(result.c, p.type, p.m, p.n);
    const cublasLtEpilogue_t epilogue = epilogue_of(p.epilogue.kind);
    set(result.product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    // The library's D has our columns as rows, n of them: that is the length of a bias and the
    // leading dimension of pre. Both have D's type.
    if (has_pre(p.epilogue.kind)) set(result.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    // The heuristic considers the alignment of these pointers.
    set_pointers(result, p.epilogue);
    return result;
  }
  void set_pointers(const Prepared& prepared, const LibraryEpilogue& epilogue) const {
    if (has_bias(epilogue.kind))
      set(prepared.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
    if (has_pre(epilogue.kind))
      set(prepared.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.pre);
  }
  template <class Value>
  void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
           const Value& value) const {
    check(library_.product_set(product, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  // Sets the algorithm that the file has for the key; returns false if there is none or the library
  // no longer accepts it.
  bool recall(const std::string& key, size_t workspace_bytes, Prepared& prepared) const {
    const auto words = algorithms_.find(key);
    if (!words) return false;
    static_assert(sizeof(prepared.algorithm.data) == sizeof(*words));
    std::copy(words->begin(), words->end(), prepared.algorithm.data);
    cublasLtMatmulHeuristicResult_t found{};
    const cublasStatus_t status =
        library_.check_algorithm(handle_, prepared.product, prepared.a, prepared.b, prepared.c,
                                 prepared.c, &prepared.algorithm, &found);
    prepared.usable = status == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= workspace_bytes;
    prepared.workspace_bytes = found.workspaceSize;
    return prepared.usable;
  }

  // Chooses the algorithm that the library ranks first, except those that split sums between blocks
  // in an order that depends on timing.
  void choose(const std::string& key, const Alignments& aligned, size_t workspace_bytes,
              Prepared& prepared) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(library_.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(library_.preference_set(preference, attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned.a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned.b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned.c);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned.c);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        library_.choose(handle_, prepared.product, prepared.a, prepared.b, prepared.c, prepared.c,
                        preference, 1, &best, &found);
    (void)library_.preference_destroy(preference);
    prepared.usable =
        status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    if (!prepared.usable) return;
    prepared.algorithm = best.algo;
    prepared.workspace_bytes = best.workspaceSize;
    AlgorithmWords words{};
    std::copy_n(best.algo.data, words.size(), words.begin());
    algorithms_.add(key, words);
  }

  void release(Prepared& prepared) const {
    (void)library_.layout_destroy(prepared.a);
    (void)library_.layout_destroy(prepared.b);
    (void)library_.layout_destroy(prepared.c);
    (void)library_.product_destroy(prepared.product);
  }
  void forget() {
    for (auto& [key, prepared] : prepared_) release(prepared);
    prepared_.clear();
  }

  // Shapes held at a time: a model has tens.
  static constexpr size_t kPreparedMax = 4096;

  const Library library_;
  const std::string prefix_;
  AlgorithmFile algorithms_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<std::string, Prepared> prepared_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixLibrary>> open_matrix_library(
    const std::string& device, const std::string& algorithms_path) {
  const auto library = open_library();
  if (!library.ok()) return library.status();
  return std::make_unique<CublasLt>(*library, device, algorithms_path);
}

}  // namespace muster::trainer::cuda
