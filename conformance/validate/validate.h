/* The extension "kvc.validate/1" of libkvc_validate.so: what the layer found in this process. Not
 * part of the frozen line. docs/conformance.md says how the layer is put between an engine and its
 * connector. */
#ifndef KVC_VALIDATE_H_
#define KVC_VALIDATE_H_

#include <kvc/kvc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_VALIDATE_EXTENSION "kvc.validate/1"

typedef struct kvc_finding {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t engine; /* 1, 2, ...: which opened engine of this process; 0: none */
  uint64_t call;   /* of that engine, 1, 2, ... */
  kvc_bytes rule;  /* "KVC-H-023"; this and the texts below live until forget */
  kvc_bytes slot;
  kvc_bytes text;
} kvc_finding;

typedef struct kvc_validate_api {
  uint32_t struct_size;
  uint32_t reserved0;

  /* [any] Findings since the start or the last forget, of all engines of this process. */
  uint64_t (*findings)(void) KVC_NOTHROW;

  /* [any] The index-th of them, the oldest first. KVC_E_ARG: there is none; of more than 10,000
     only the count is kept. */
  kvc_status (*finding)(uint64_t index, kvc_finding* out) KVC_NOTHROW;

  /* [any] No other call of this table at the same time. */
  void (*forget)(void) KVC_NOTHROW;
} kvc_validate_api;

#ifdef __cplusplus
}
#endif
#endif /* KVC_VALIDATE_H_ */
