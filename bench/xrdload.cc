// Load through the stock client library. Prints one line of JSON: operations, seconds, rate, latency quantiles in microseconds, errors.
//   xrdload URL PHASE THREADS FILES DIRS BYTES [PASSES]    PHASE: create | stat | read | remove
// Many small files: n threads do one phase over k directories. All threads share XrdCl's connection to the server, as in any program
// that uses it.
//   xrdload URL readv THREADS REQUESTS SEGMENTS BYTES SOURCE
// Vector reads of so many segments at random places of the one file at URL, whose content is that of the local file SOURCE: each thread
// has a connection of its own, and compares all of its first answer and the first segment of each further one.
#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClFileSystem.hh>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

struct Job {
  std::string url;
  std::string phase;
  int threads;
  int files;
  int dirs;
  int bytes;
  int passes;

  std::string path(int number) const {
    return "/d" + std::to_string(number % dirs) + "/f" + std::to_string(number);
  }
};

static bool create(const Job &job, int number, const std::vector<char> &data) {
  XrdCl::File file;
  if (!file.Open(job.url + job.path(number), XrdCl::OpenFlags::New, XrdCl::Access::UR | XrdCl::Access::UW).IsOK()) return false;
  const bool written = file.Write(0, data.size(), data.data()).IsOK();
  return file.Close().IsOK() && written;
}

static bool read(const Job &job, int number, std::vector<char> &buffer) {
  XrdCl::File file;
  uint32_t got = 0;
  if (!file.Open(job.url + job.path(number), XrdCl::OpenFlags::Read).IsOK()) return false;
  const bool ok = file.Read(0, buffer.size(), buffer.data(), got).IsOK();
  return file.Close().IsOK() && ok && got == buffer.size();
}

// One operation; whether it succeeded.
static bool once(const Job &job, XrdCl::FileSystem &fs, const std::string &prefix, int number, std::vector<char> &buffer) {
  if (job.phase == "create") return create(job, number, buffer);
  if (job.phase == "read") return read(job, number, buffer);
  const std::string path = prefix + job.path(number);
  if (job.phase == "remove") return fs.Rm(path).IsOK();
  XrdCl::StatInfo *info = nullptr;
  const bool ok = fs.Stat(path, info).IsOK() && info->GetSize() == static_cast<uint64_t>(job.bytes);
  delete info;
  return ok;
}

static void report(const std::string &phase, int threads, double seconds, const std::vector<std::vector<float>> &latencies, int errors) {
  std::vector<float> all;
  for (const auto &some : latencies) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  const auto quantile = [&](double q) { return all.empty() ? 0.0f : all[std::min(all.size() - 1, static_cast<size_t>(q * all.size()))]; };
  std::printf("{\"phase\": \"%s\", \"threads\": %d, \"ops\": %zu, \"seconds\": %.3f, \"rate\": %.1f, \"p50_us\": %.0f, \"p99_us\": %.0f, "
              "\"p999_us\": %.0f, \"errors\": %d}\n",
              phase.c_str(), threads, all.size(), seconds, all.size() / seconds, quantile(0.5), quantile(0.99), quantile(0.999), errors);
  std::fflush(stdout);
}

static float microseconds_since(Clock::time_point start) {
  return std::chrono::duration<float, std::micro>(Clock::now() - start).count();
}

// Whether a segment holds what the source holds there.
static bool same(const XrdCl::ChunkInfo &chunk, const char *source) {
  return std::memcmp(chunk.buffer, source + chunk.offset, chunk.length) == 0;
}

static int vector_reads(const std::string &where, int threads_wanted, int requests, int segments, uint32_t bytes, const char *source_path) {
  const int descriptor = open(source_path, O_RDONLY);
  struct stat info{};
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || info.st_size < bytes) {
    std::fprintf(stderr, "cannot read %s\n", source_path);
    return 1;
  }
  void *mapped = mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return 1;
  const char *source = static_cast<const char *>(mapped);
  std::atomic<int> errors{0};
  std::vector<std::vector<float>> latencies(threads_wanted);
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (int who = 0; who < threads_wanted; ++who) {
    threads.emplace_back([&, who] {
      XrdCl::URL url(where);
      url.SetUserName("c" + std::to_string(who));  // XrdCl has a connection for each user of a server
      XrdCl::File file;
      if (!file.Open(url.GetURL(), XrdCl::OpenFlags::Read).IsOK()) {
        ++errors;
        return;
      }
      std::mt19937_64 random(88172645u + who);
      std::uniform_int_distribution<uint64_t> place(0, info.st_size - bytes);
      std::vector<char> buffer(static_cast<size_t>(segments) * bytes);
      for (int turn = who; turn < requests; turn += threads_wanted) {
        XrdCl::ChunkList chunks;
        for (int at = 0; at < segments; ++at) chunks.emplace_back(place(random), bytes, buffer.data() + static_cast<size_t>(at) * bytes);
        XrdCl::VectorReadInfo *got = nullptr;
        const auto start = Clock::now();
        bool ok = file.VectorRead(chunks, nullptr, got).IsOK() && got->GetSize() == buffer.size();
        latencies[who].push_back(microseconds_since(start));
        delete got;
        const size_t compared = turn == who ? chunks.size() : 1;
        for (size_t at = 0; ok && at < compared; ++at) ok = same(chunks[at], source);
        if (!ok) ++errors;
      }
      if (!file.Close().IsOK()) ++errors;
    });
  }
  for (auto &thread : threads) thread.join();
  report("readv", threads_wanted, std::chrono::duration<double>(Clock::now() - begin).count(), latencies, errors);
  return errors == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc != 7 && argc != 8) {
    std::fprintf(stderr, "usage: %s URL create|stat|read|remove THREADS FILES DIRS BYTES [PASSES]\n", argv[0]);
    std::fprintf(stderr, "       %s URL readv THREADS REQUESTS SEGMENTS BYTES SOURCE\n", argv[0]);
    return 2;
  }
  if (argc == 8 && std::strcmp(argv[2], "readv") == 0) {
    const int code = vector_reads(argv[1], std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6]), argv[7]);
    std::_Exit(code);
  }
  const Job job{argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6]),
                argc == 8 ? std::atoi(argv[7]) : 1};
  const XrdCl::URL url(job.url);
  const std::string prefix = "/" + url.GetPath();

  if (job.phase == "create") {
    XrdCl::FileSystem fs(url);
    for (int dir = 0; dir < job.dirs; ++dir) {
      const std::string path = prefix + "/d" + std::to_string(dir);
      if (!fs.MkDir(path, XrdCl::MkDirFlags::MakePath, XrdCl::Access::UR | XrdCl::Access::UW | XrdCl::Access::UX).IsOK()) {
        std::fprintf(stderr, "cannot make %s\n", path.c_str());
        return 1;
      }
    }
  }

  std::atomic<int> next{0}, errors{0};
  std::vector<std::vector<float>> latencies(job.threads);
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (int who = 0; who < job.threads; ++who) {
    threads.emplace_back([&, who] {
      XrdCl::FileSystem fs(url);
      std::vector<char> buffer(job.bytes);
      unsigned state = 88172645u + who;  // bytes that do not compress
      for (char &byte : buffer) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<char>(state >> 24);
      }
      for (int turn = next++; turn < job.files * job.passes; turn = next++) {
        const auto start = Clock::now();
        if (!once(job, fs, prefix, turn % job.files, buffer)) ++errors;
        latencies[who].push_back(microseconds_since(start));
      }
    });
  }
  for (auto &thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  report(job.phase, job.threads, seconds, latencies, errors);
  std::_Exit(errors == 0 ? 0 : 1);
}
