// The settings of a world, whatever the program's locale is.
#include "runtime/group/settings.hpp"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <filesystem>
#include <string>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

// A Turkish locale in a folder of its own, made from the sources of libc; empty where these are missing.
class TurkishLocale {
 public:
  TurkishLocale() {
    char folder[] = "/tmp/tutti-locale-XXXXXX";
    if (::mkdtemp(folder) == nullptr) return;
    folder_ = folder;
    const std::string command = "localedef -i tr_TR -f UTF-8 " + folder_ + "/tr_TR.UTF-8 >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) return;
    ::setenv("LOCPATH", folder, 1);
    is_set_ = std::setlocale(LC_ALL, "tr_TR.UTF-8") != nullptr;
  }
  ~TurkishLocale() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }
  TurkishLocale(const TurkishLocale&) = delete;
  TurkishLocale& operator=(const TurkishLocale&) = delete;
  bool is_set() const { return is_set_; }

 private:
  std::string folder_;
  bool is_set_ = false;
};

TEST_CASE("variables have the same names in a Turkish locale") {
  const TurkishLocale locale;
  if (!locale.is_set()) {
    WARN("skipped: localedef cannot make tr_TR.UTF-8 here");
    return;
  }
  REQUIRE(std::localeconv()->decimal_point == std::string(","));
  const auto settings = read_settings({{"TUTTI_ADJUST_BARRIER", "dissemination"}, {"TUTTI_TIMEOUT", "1.5s"}});
  REQUIRE(settings);
  CHECK(settings->timeout == std::chrono::milliseconds(1500));
  CHECK(std::any_of(settings->rules.begin(), settings->rules.end(), [](const RuleText& rule) {
    return rule.source == "TUTTI_ADJUST_BARRIER" && rule.text == "dissemination";
  }));
}

}  // namespace
}  // namespace tutti
