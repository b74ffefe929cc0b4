// Loads libpmix and asks it. Knows no bootstrap.
#include "runtime/job/launchers/pmix.hpp"

#include "tutti_config.hpp"

#if TUTTI_HAVE_PMIX

#include <dlfcn.h>
#include <fmt/format.h>
#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/job/launchers/rank_variables.hpp"
#include "runtime/job/launchers/session.hpp"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

// The functions of libpmix that are used; looked up once.
struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Get_nb) get_nb = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
  std::string problem;

  Library() {
    // Never closed: it has threads.
    void* const handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      problem = fmt::format("libpmix.so.2 cannot be loaded: {}", ::dlerror());
      return;
    }
    find(handle, "PMIx_Init", init);
    find(handle, "PMIx_Finalize", finalize);
    find(handle, "PMIx_Put", put);
    find(handle, "PMIx_Commit", commit);
    find(handle, "PMIx_Get_nb", get_nb);
    find(handle, "PMIx_Error_string", error_string);
  }

  template <class Function>
  void find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function == nullptr) problem = fmt::format("libpmix.so.2 has no {}", name);
  }
};

const Library& library() {
  static const Library kLibrary;
  return kLibrary;
}

Status failure(const char* call, pmix_status_t status) {
  const StatusCode code = status == PMIX_ERR_TIMEOUT ? StatusCode::timeout : StatusCode::peer_failed;
  return Status(code, fmt::format("PMIx: {}: {}", call, library().error_string(status)));
}

// The answer to a PMIx request, in a form that outlives the library's own value.
struct Answer {
  pmix_status_t status = PMIX_ERROR;
  std::string text;          // of strings
  std::int64_t number = -1;  // of numbers
};

// Shared with the library's thread, which may answer after we have stopped waiting.
struct Request {
  std::mutex mutex;
  std::condition_variable is_answered;
  std::optional<Answer> answer;
};

Answer read_value(pmix_status_t status, const pmix_value_t* value) {
  Answer answer;
  answer.status = status;
  if (status != PMIX_SUCCESS || value == nullptr) return answer;
  switch (value->type) {
    case PMIX_STRING:
      answer.text = value->data.string;
      break;
    case PMIX_UINT16:
      answer.number = value->data.uint16;
      break;
    case PMIX_UINT32:
      answer.number = value->data.uint32;
      break;
    default:
      answer.status = PMIX_ERR_TYPE_MISMATCH;
  }
  return answer;
}

// Releases of the library differ in whether they free the value afterwards. A leak of a few bytes is better
// than a double free.
extern "C" void on_answer(pmix_status_t status, pmix_value_t* value, void* context) {
  const std::unique_ptr<std::shared_ptr<Request>> request(static_cast<std::shared_ptr<Request>*>(context));
  const std::lock_guard lock((*request)->mutex);
  (*request)->answer = read_value(status, value);
  (*request)->is_answered.notify_one();
}

class PmixSession final : public LauncherSession {
 public:
  static Result<std::shared_ptr<PmixSession>> open(std::string_view name_space) {
    pmix_proc_t self = {};
    if (const pmix_status_t status = library().init(&self, nullptr, 0); status != PMIX_SUCCESS) {
      return failure("PMIx_Init", status).with_context("the launcher of PMIX_NAMESPACE cannot be reached");
    }
    std::shared_ptr<PmixSession> session(new PmixSession(self));
    if (name_space != self.nspace) {
      return invalid_argument(
          fmt::format("PMIX_NAMESPACE={}, but this process is of {}", name_space, self.nspace));
    }
    return session;
  }
  ~PmixSession() override { finalize(); }

  const pmix_proc_t& self() const { return self_; }

  // nullopt: there is no such value. Takes any rank; PMIX_RANK_WILDCARD stands for the job.
  Result<std::optional<Answer>> find(pmix_rank_t rank, const std::string& key, Clock::time_point deadline) {
    if (const Status usable = check(); !usable) return usable;
    pmix_proc_t process = self_;
    process.rank = rank;
    // The launcher also gets a timeout, a little later, so that an abandoned request does not stay with it
    // for ever.
    pmix_info_t timeout = {};
    std::strncpy(timeout.key, PMIX_TIMEOUT, PMIX_MAX_KEYLEN);
    timeout.value.type = PMIX_INT;
    const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now()).count();
    timeout.value.data.integer = static_cast<int>(std::clamp<long long>(left + 1, 1, 1000000));
    const auto request = std::make_shared<Request>();
    auto context = std::make_unique<std::shared_ptr<Request>>(request);
    const pmix_status_t posted =
        library().get_nb(&process, key.c_str(), &timeout, 1, on_answer, context.get());
    if (posted != PMIX_SUCCESS) {
      if (posted == PMIX_ERR_NOT_FOUND) return std::optional<Answer>();
      return failure("PMIx_Get", posted);
    }
    static_cast<void>(context.release());  // on_answer() deletes it
    std::unique_lock lock(request->mutex);
    if (!wait_until(request->is_answered, lock, deadline, [&] { return request->answer.has_value(); })) {
      return Status(StatusCode::timeout, fmt::format("PMIx: no answer about {} in time", key));
    }
    if (request->answer->status == PMIX_ERR_NOT_FOUND) return std::optional<Answer>();
    if (request->answer->status != PMIX_SUCCESS) return failure("PMIx_Get", request->answer->status);
    return std::optional<Answer>(*request->answer);
  }

  Status put(const std::string& key, const std::string& value) {
    TUTTI_RETURN_IF_ERROR(check());
    std::string text = value;
    pmix_value_t wrapped = {};
    wrapped.type = PMIX_STRING;
    wrapped.data.string = text.data();
    if (const auto status = library().put(PMIX_GLOBAL, key.c_str(), &wrapped); status != PMIX_SUCCESS) {
      return failure("PMIx_Put", status);
    }
    if (const auto status = library().commit(); status != PMIX_SUCCESS) return failure("PMIx_Commit", status);
    return {};
  }

  void finalize() override {
    if (std::exchange(is_finalized_, true) || pid_ != ::getpid()) return;
    library().finalize(nullptr, 0);
  }

 private:
  explicit PmixSession(const pmix_proc_t& self) : self_(self), pid_(::getpid()) {}

  Status check() const {
    if (pid_ == ::getpid()) return {};
    return invalid_argument(
        "PMIx belongs to the process that the launcher started, not to its child of fork()");
  }

  pmix_proc_t self_;
  const pid_t pid_;
  bool is_finalized_ = false;
};

// Other ranks see committed values without a fence: their launcher requests them from the launcher of the
// rank.
class PmixStore final : public Store {
 public:
  explicit PmixStore(std::shared_ptr<PmixSession> session) : session_(std::move(session)) {}

  Status put(const std::string& key, const std::string& value) override { return session_->put(key, value); }
  Status commit(Clock::time_point) override { return {}; }

  Result<std::string> get(const std::string& key, Clock::time_point deadline) override {
    // The launcher waits until rank 0 has committed something. If that was without the key, it answers at
    // once.
    for (auto pause = 1ms;; pause = std::min(pause * 2, 64ms)) {
      Result<std::optional<Answer>> found = session_->find(0, key, deadline);
      if (found && found->has_value()) return (*found)->text;
      if (!found && found.status().code() != StatusCode::timeout) return found.status();
      if (!found || Clock::now() + pause >= deadline) {
        return Status(StatusCode::timeout, fmt::format("{}: rank 0 has not put {} in time", describe(), key),
                      0);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::string describe() const override { return fmt::format("PMIx ({})", session_->self().nspace); }

 private:
  std::shared_ptr<PmixSession> session_;
};

}  // namespace

std::string why_no_pmix() { return library().problem; }

Result<LaunchInfo> launch_from_pmix(const Environment& environment, Clock::time_point deadline) {
  // First, so that the library's functions outlive the session.
  if (std::string reason = why_no_pmix(); !reason.empty()) return unsupported(std::move(reason));
  static SessionOfProcess<PmixSession> sessions;
  const std::string name_space(environment.find("PMIX_NAMESPACE").value_or(""));
  const Result<std::shared_ptr<PmixSession>> opened =
      sessions.get(name_space, [&] { return PmixSession::open(name_space); });
  if (!opened) return opened.status();
  PmixSession& session = **opened;
  const pmix_rank_t self = session.self().rank;
  struct Question {
    const char* key;
    pmix_rank_t rank;
    std::int64_t answer = -1;
  };
  Question size{PMIX_JOB_SIZE, PMIX_RANK_WILDCARD}, local_size{PMIX_LOCAL_SIZE, PMIX_RANK_WILDCARD};
  Question local_rank{PMIX_LOCAL_RANK, self}, node{PMIX_NODEID, self};
  for (Question* question : {&size, &local_size, &local_rank, &node}) {
    const Result<std::optional<Answer>> answer = session.find(question->rank, question->key, deadline);
    if (!answer) return answer.status();
    if (answer->has_value()) question->answer = (*answer)->number;
  }
  if (size.answer < 1 || size.answer > kMaxSize || static_cast<std::int64_t>(self) >= size.answer) {
    return internal_error(fmt::format("PMIx: rank {} of {} is not a rank", self, size.answer));
  }
  LaunchInfo info;
  info.rank = static_cast<int>(self);
  info.size = static_cast<int>(size.answer);
  if (local_size.answer >= 1 && local_size.answer <= size.answer && local_rank.answer >= 0 &&
      local_rank.answer < local_size.answer) {
    info.local_size = static_cast<int>(local_size.answer);
    info.local_rank = static_cast<int>(local_rank.answer);
  }
  if (node.answer >= 0 && node.answer < kMaxSize) info.node = static_cast<int>(node.answer);
  info.job = make_job("pmix", name_space);
  info.store = std::make_shared<PmixStore>(*opened);
  return info;
}

}  // namespace tutti::detail

#else

namespace tutti::detail {

std::string why_no_pmix() { return "tutti was built without PMIx (Debian: libpmix-dev)"; }

Result<LaunchInfo> launch_from_pmix(const Environment&, Clock::time_point) {
  return unsupported(why_no_pmix());
}

}  // namespace tutti::detail

#endif
