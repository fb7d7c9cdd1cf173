// Metrics: the same figures as stats in Prometheus text, by prometheus-cpp's serializer.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <vector>

#include "fs/control.h"

namespace prefixfs {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

ClientMetric Value(MetricType type, double value, Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return metric;
}

MetricFamily Single(const char* name, const char* help, MetricType type, uint64_t value) {
  return {name, help, type, {Value(type, static_cast<double>(value), {})}};
}

MetricFamily Durations(const OpStats& stats) {
  MetricFamily family{"prefixfs_operation_duration_seconds",
                      "Time from request to reply by operation.",
                      MetricType::Histogram,
                      {}};
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    const auto snapshot = stats.Read(static_cast<Op>(i));
    if (snapshot.count == 0) continue;
    ClientMetric metric;
    metric.label = {{"operation", std::string(OpName(static_cast<Op>(i)))}};
    metric.histogram.sample_count = snapshot.count;
    metric.histogram.sample_sum = static_cast<double>(snapshot.sum_us) / 1e6;
    uint64_t below = 0;
    for (size_t bucket = 0; bucket < OpStats::kBuckets; ++bucket) {
      below += snapshot.buckets[bucket];
      const bool last = bucket + 1 == OpStats::kBuckets;
      metric.histogram.bucket.push_back(
          {below, last ? std::numeric_limits<double>::infinity()
                       : static_cast<double>(OpStats::BucketLimitUs(bucket)) / 1e6});
    }
    family.metric.push_back(std::move(metric));
  }
  return family;
}

MetricFamily Errors(const OpStats& stats) {
  MetricFamily family{"prefixfs_operation_errors_total",
                      "Operations answered with an error, absent names included.",
                      MetricType::Counter,
                      {}};
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    const auto snapshot = stats.Read(static_cast<Op>(i));
    if (snapshot.count == 0) continue;
    family.metric.push_back(Value(MetricType::Counter, static_cast<double>(snapshot.errors),
                                  {{"operation", std::string(OpName(static_cast<Op>(i)))}}));
  }
  return family;
}

void AddDrives(const Cache::Report& report, std::vector<MetricFamily>* families) {
  MetricFamily failed{"prefixfs_drive_failed",
                      "1 if the drive is lost and its blocks are misses.",
                      MetricType::Gauge,
                      {}};
  MetricFamily stalled{"prefixfs_drive_stalled",
                       "1 if the drive does not answer what it was asked.",
                       MetricType::Gauge,
                       {}};
  MetricFamily free{
      "prefixfs_drive_free_bytes", "Free bytes of the drive's filesystem.", MetricType::Gauge, {}};
  for (const auto& drive : report.drives) {
    // Not everybody may know the path.
    const Labels labels{{"drive", drive.path.empty() ? std::to_string(drive.slot) : drive.path}};
    stalled.metric.push_back(Value(MetricType::Gauge, drive.stalled ? 1 : 0, labels));
    failed.metric.push_back(Value(MetricType::Gauge, drive.failed ? 1 : 0, labels));
    free.metric.push_back(Value(MetricType::Gauge, static_cast<double>(drive.free), labels));
  }
  families->push_back(std::move(failed));
  families->push_back(std::move(stalled));
  families->push_back(std::move(free));
}

void AddModels(const Cache::Report& report, std::vector<MetricFamily>* families) {
  MetricFamily blocks{"prefixfs_model_blocks",
                      "Sealed blocks by model, as its clients' names tell it.",
                      MetricType::Gauge,
                      {}};
  MetricFamily bytes{
      "prefixfs_model_bytes", "Bytes of sealed blocks by model.", MetricType::Gauge, {}};
  for (const auto& model : report.models) {
    const Labels labels{{"model", model.model}};
    blocks.metric.push_back(Value(MetricType::Gauge, static_cast<double>(model.blocks), labels));
    bytes.metric.push_back(Value(MetricType::Gauge, static_cast<double>(model.bytes), labels));
  }
  families->push_back(std::move(blocks));
  families->push_back(std::move(bytes));
}

}  // namespace

std::string Control::Metrics(Access& access) {
  const Cache::Report report = ReportFor(access);
  const Counters& c = cache_.counters();
  constexpr auto kGauge = MetricType::Gauge;
  constexpr auto kCounter = MetricType::Counter;
  std::vector<MetricFamily> families{
      Single("prefixfs_capacity_bytes", "The byte budget.", kGauge, report.capacity),
      Single("prefixfs_used_bytes", "Bytes the tier takes on its filesystems.", kGauge,
             report.used),
      Single("prefixfs_reserved_bytes", "Bytes promised to files being written.", kGauge,
             report.reserved),
      Single("prefixfs_blocks", "Sealed blocks.", kGauge, report.blocks),
      Single("prefixfs_inodes", "Blocks, directories and links, those being written included.",
             kGauge, report.inodes),
      Single("prefixfs_max_inodes", "The most of them that there may be.", kGauge,
             report.max_inodes),
      Single("prefixfs_backing_files", "Backing files that the kernel keeps open for passthrough.",
             kGauge, nodes_.registered()),
      Single("prefixfs_unchecked_blocks", "Sealed blocks waiting for their checksum.", kGauge,
             report.unchecked),
      Single("prefixfs_evicted_blocks_total", "Blocks evicted.", kCounter, c.evicted_blocks.load()),
      Single("prefixfs_evicted_bytes_total", "Bytes evicted.", kCounter, c.evicted_bytes.load()),
      Single("prefixfs_undeletable_blocks_total", "Evictions that the filesystem refused.",
             kCounter, c.undeletable_blocks.load()),
      Single("prefixfs_corrupt_blocks_total", "Blocks dropped by their checksum.", kCounter,
             c.corrupt_blocks.load()),
      Single("prefixfs_opens_total", "Files opened.", kCounter, c.opens.load()),
      Single("prefixfs_lookup_hits_total", "Lookups of files that were there.", kCounter,
             c.hits.load()),
      Single("prefixfs_lookup_misses_total", "Lookups of names that were not.", kCounter,
             c.misses.load()),
      Single("prefixfs_published_total", "Files published.", kCounter, c.published.load()),
      Single("prefixfs_torn_writes_total", "Writers killed before they closed.", kCounter,
             c.torn.load()),
      Single("prefixfs_no_space_total", "Creates refused because nothing could be evicted.",
             kCounter, c.no_space.load()),
      Single("prefixfs_no_descriptors_total",
             "Opens refused because the daemon may open no more files.", kCounter,
             c.no_descriptors.load()),
      Single("prefixfs_slow_requests_total", "Requests that took longer than request_limit.",
             kCounter, c.slow_requests.load()),
      Single("prefixfs_late_requests_total", "Requests answered at their deadline.", kCounter,
             c.late_requests.load()),
      Errors(stats_),
      Durations(stats_)};
  AddDrives(report, &families);
  AddModels(report, &families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace prefixfs
