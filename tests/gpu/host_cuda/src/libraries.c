/* What ONNX Runtime's CUDA execution provider links against besides the runtime: cuBLAS, cuBLASLt and cuRAND.
 *
 * Handles can be made, and nothing can be computed. */
#include <stdlib.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 15 }; /* cublasStatus_t */

#define MAKES(name)                                                                                                    \
    int name(void **out) { return (*out = calloc(1, 64)) ? SUCCESS : NOT_SUPPORTED; }
#define DOES_NOTHING(name)                                                                                             \
    int name(void) { return SUCCESS; }
#define REFUSES(name)                                                                                                  \
    int name(void) { return NOT_SUPPORTED; }

#ifdef CUBLAS
MAKES(cublasCreate_v2)
DOES_NOTHING(cublasDestroy_v2)
DOES_NOTHING(cublasSetStream_v2)
DOES_NOTHING(cublasSetMathMode)
int cublasGetMathMode(void *handle, int *mode) { return *mode = SUCCESS; }
const char *cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SUCCESS"; }
const char *cublasGetStatusString(int status) { return "there is no cuBLAS on host memory"; }
REFUSES(cublasDcopy_v2)
REFUSES(cublasDgeam)
REFUSES(cublasDgemmBatched)
REFUSES(cublasDgemmStridedBatched)
REFUSES(cublasDgemm_v2)
REFUSES(cublasDgetrfBatched)
REFUSES(cublasDgetriBatched)
REFUSES(cublasGemmBatchedEx)
REFUSES(cublasGemmEx)
REFUSES(cublasGemmStridedBatchedEx)
REFUSES(cublasScopy_v2)
REFUSES(cublasSgeam)
REFUSES(cublasSgemmBatched)
REFUSES(cublasSgemmStridedBatched)
REFUSES(cublasSgemm_v2)
REFUSES(cublasSgetrfBatched)
REFUSES(cublasSgetriBatched)
REFUSES(cublasSscal_v2)
#endif

#ifdef CUBLASLT
MAKES(cublasLtCreate)
DOES_NOTHING(cublasLtDestroy)
REFUSES(cublasLtMatmul)
REFUSES(cublasLtMatmulAlgoConfigSetAttribute)
REFUSES(cublasLtMatmulAlgoGetHeuristic)
REFUSES(cublasLtMatmulAlgoInit)
MAKES(cublasLtMatmulDescCreate)
DOES_NOTHING(cublasLtMatmulDescDestroy)
DOES_NOTHING(cublasLtMatmulDescSetAttribute)
MAKES(cublasLtMatmulPreferenceCreate)
DOES_NOTHING(cublasLtMatmulPreferenceDestroy)
DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
MAKES(cublasLtMatrixLayoutCreate)
DOES_NOTHING(cublasLtMatrixLayoutDestroy)
DOES_NOTHING(cublasLtMatrixLayoutSetAttribute)
REFUSES(cublasLtMatrixTransform)
MAKES(cublasLtMatrixTransformDescCreate)
DOES_NOTHING(cublasLtMatrixTransformDescDestroy)
#endif
