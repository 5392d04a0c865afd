// Fontconfig keeps its tables until the program ends; LeakSanitizer is to report only what is ours.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libfontconfig\n";
}
