/* Prints the tables of docs/abi.md between its markers, from kvc_calls.def. After a change of the
 * list: build/dev/bin/kvc_doc_tables, and its output goes between the markers of docs/abi.md. */
#include <kvc/kvc_util.h>
#include <stdio.h>

static void row(int number, const char* slot, const char* handle, const char* role,
                unsigned attributes, unsigned minor, const char* need, const char* capability) {
  printf("| %d | `%s` | %s | %s |", number, slot, handle, role);
  if ((attributes & KVC_ATTR_NOWAIT) != 0) printf(" nowait");
  if ((attributes & KVC_ATTR_NOALLOC) != 0) printf(" noalloc");
  if ((attributes & KVC_ATTR_PURE) != 0) printf(" pure");
  if ((attributes & KVC_ATTR_CALLS_HOST) != 0) printf(" calls-host");
  printf(" | 1.%u | %s |\n", minor,
         strcmp(capability, "0") != 0 ? capability
         : strcmp(need, "req") == 0   ? "always"
                                      : "optional");
}

int main(void) {
  int number = 0;
  puts("| # | slot | handle | role | attributes | since | required by |");
  puts("|---|---|---|---|---|---|---|");
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  row(++number, #slot, #handle, #role, attributes, minor, #need, #capability);
#include <kvc/kvc_calls.def>
  puts("");
  puts("| # | slot of the host | handle | role | attributes | since | required by |");
  puts("|---|---|---|---|---|---|---|");
  number = 0;
#define KVC_HOST_SLOT(slot, role, attributes, minor, need, capability) \
  row(++number, #slot, "host", #role, attributes, minor, #need, #capability);
#include <kvc/kvc_calls.def>
  puts("");
  puts("| growable struct | bytes in 1.0 |");
  puts("|---|---|");
#define KVC_STRUCT(type, bytes) printf("| `%s` | %d |\n", #type, bytes);
#include <kvc/kvc_calls.def>
  return 0;
}
