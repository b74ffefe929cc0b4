// A vendor library that a module needs. Knows nothing.
extern "C" [[gnu::visibility("default")]] const char* absent_library_name() { return "absent"; }
