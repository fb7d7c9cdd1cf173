#include "tools/log_thread.h"

#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include "cache/base/worker_pool.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxLines = 8192;

class QueuedSink final : public spdlog::sinks::sink {
 public:
  explicit QueuedSink(spdlog::sink_ptr to) : to_(std::move(to)) {}
  void log(const spdlog::details::log_msg& message) override {
    const auto copy = std::make_shared<spdlog::details::log_msg_buffer>(message);
    (void)writer_
        .Submit([this, copy] {
          to_->log(*copy);
          to_->flush();
        })
        .ok();
  }
  void flush() override {}
  void set_pattern(const std::string& pattern) override { to_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    to_->set_formatter(std::move(formatter));
  }

 private:
  const spdlog::sink_ptr to_;
  WorkerPool writer_{1, kMaxLines};  // ends first
};

}  // namespace

LogThread::LogThread() : before_(spdlog::default_logger()) {
  auto logger = std::make_shared<spdlog::logger>(
      before_->name(), std::make_shared<QueuedSink>(before_->sinks().front()));
  logger->set_level(before_->level());
  spdlog::set_default_logger(std::move(logger));
}

LogThread::~LogThread() { spdlog::set_default_logger(std::move(before_)); }

}  // namespace prefixfs
