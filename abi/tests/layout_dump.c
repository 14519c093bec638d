/* Prints the layout of kvc.h: sizes, offsets and constants. The golden text is layout.txt; after a
 * wanted change: build/dev/bin/kvc_layout_dump > abi/tests/layout.txt, and an entry in
 * abi/CHANGES.md. */
#include <inttypes.h>
#include <kvc/kvc_util.h>
#include <stdio.h>

/* No padding: a field starts where the one before it ends, and the last ends the struct. So none is
   missing in the list. */
#define KVC_TYPE(type, last) KVC_ASSERT(KVC_THROUGH(type, last) == sizeof(type));
#include "abi/layout_items.def"

static size_t filled; /* bytes of the present struct that its fields so far account for */

static int field(const char* type, const char* name, size_t offset, size_t size) {
  printf("  %zu %s %zu\n", offset, name, size);
  if (offset != filled) {
    fprintf(stderr, "%s: %s starts at %zu, the fields before it end at %zu\n", type, name, offset,
            filled);
    return 1;
  }
  filled = offset + size;
  return 0;
}

static int end_of(const char* type, size_t size) {
  if (type != NULL && filled != size) {
    fprintf(stderr, "%s: its fields end at %zu of %zu\n", type, filled, size);
    return 1;
  }
  filled = 0;
  return 0;
}

static void constant(const char* name, int beyond, int64_t value) {
  printf("const %s ", name);
  if (beyond) {
    printf("%" PRIu64 "\n", (uint64_t)value);
  } else {
    printf("%" PRId64 "\n", value);
  }
}

int main(void) {
  int bad = 0;
  const char* type_before = NULL;
  size_t size_before = 0;
#define KVC_TYPE(type, last)               \
  bad += end_of(type_before, size_before); \
  type_before = #type;                     \
  size_before = sizeof(type);              \
  printf("struct %s %zu\n", #type, sizeof(type));
#define KVC_FIELD(type, f) bad += field(#type, #f, offsetof(type, f), sizeof(((type*)0)->f));
#include "abi/layout_items.def"
  bad += end_of(type_before, size_before);
#define KVC_CONST(name) constant(#name, (name) >= INT64_MAX, (int64_t)(name));
#include "abi/layout_items.def"
  printf("const KVC_PLUGIN_ENTRY_NAME %s\n", KVC_PLUGIN_ENTRY_NAME);
  return bad == 0 ? 0 : 1;
}
