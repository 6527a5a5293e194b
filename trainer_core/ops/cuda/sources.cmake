# The CUDA backend's sources, with absolute paths: compiled by nvcc, and by tests/gpu for the
# emulated backend.
set(muster_cuda_kernels
  activation.cu attention_backward.cu attention_cached.cu attention_d_keys_bf16.cu attention_d_query_bf16.cu attention_forward.cu
  attention_forward_bf16.cu cross_entropy.cu dropout.cu elementwise.cu embedding.cu expert_rows.cu gemm.cu norm.cu normal_fill.cu optimizer.cu quantize.cu reduction.cu rope.cu routing.cu)
set(muster_cuda_ops
  attention_ops.cc attention_parts.cc cublaslt_algorithms.cc cuda_ops.cc device.cc expert_ops.cc graphs.cc library_answer.cc loss_ops.cc matmul_ops.cc optimizer_ops.cc quantize_ops.cc embedding_ops.cc)
list(TRANSFORM muster_cuda_kernels PREPEND ${CMAKE_SOURCE_DIR}/trainer_core/ops/cuda/)
list(TRANSFORM muster_cuda_ops PREPEND ${CMAKE_SOURCE_DIR}/trainer_core/ops/cuda/)
