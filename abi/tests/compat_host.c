/* The frozen sample host, built with a header of minor 1 that has one optional slot more. */
#define main frozen_main
#include "host.c"
#undef main

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  load(argv[1]);
  puts(KVC_CAN(&api, kvc_plugin_api, trim) ? "trim: there" : "trim: absent");
  if (KVC_CAN(&api, kvc_plugin_api, trim) != ((api.caps & KVC_CAP_TRIM) != 0)) return 1;
  return frozen_main(argc, argv);
}
