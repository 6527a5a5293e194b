# The CUDA backend's sources, with absolute paths: compiled by nvcc, and by tests/gpu for the
# emulated backend.
set(muster_cuda_kernels
  rows/activation.cu attention/attention_backward.cu attention/attention_paged.cu attention/attention_d_keys_bf16.cu attention/attention_d_query_bf16.cu attention/attention_forward.cu
  attention/attention_forward_bf16.cu rows/cross_entropy.cu rows/decode_weights.cu rows/dropout.cu rows/elementwise.cu rows/embedding.cu experts/expert_rows.cu gemm/gemm.cu rows/norm.cu rows/normal_fill.cu rows/optimizer.cu rows/quantize.cu rows/reduction.cu attention/rope.cu experts/routing.cu)
set(muster_cuda_ops
  attention_ops.cc attention/attention_parts.cc gemm/cublaslt_algorithms.cc cuda_ops.cc device.cc expert_ops.cc device/graphs.cc device/library_answer.cc loss_ops.cc matmul_ops.cc optimizer_ops.cc quantize_ops.cc embedding_ops.cc)
list(TRANSFORM muster_cuda_kernels PREPEND ${CMAKE_SOURCE_DIR}/trainer_core/ops/cuda/)
list(TRANSFORM muster_cuda_ops PREPEND ${CMAKE_SOURCE_DIR}/trainer_core/ops/cuda/)
