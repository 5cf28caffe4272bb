// Many small files through the stock client library: n threads do one phase over k directories.
//   xrdload URL PHASE THREADS FILES DIRS BYTES      PHASE: create | stat | read | remove
// Prints one line of JSON: operations, seconds, rate, latency quantiles in microseconds, errors. All threads share XrdCl's connection
// to the server, as in any program that uses it.
#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClFileSystem.hh>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

int main(int argc, char **argv) {
  if (argc != 7 && argc != 8) {
    std::fprintf(stderr, "usage: %s URL create|stat|read|remove THREADS FILES DIRS BYTES [PASSES]\n", argv[0]);
    return 2;
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
        latencies[who].push_back(std::chrono::duration<float, std::micro>(Clock::now() - start).count());
      }
    });
  }
  for (auto &thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  std::vector<float> all;
  for (const auto &some : latencies) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  const auto quantile = [&](double q) { return all.empty() ? 0.0f : all[std::min(all.size() - 1, static_cast<size_t>(q * all.size()))]; };
  std::printf("{\"phase\": \"%s\", \"threads\": %d, \"ops\": %zu, \"seconds\": %.3f, \"rate\": %.1f, \"p50_us\": %.0f, \"p99_us\": %.0f, "
              "\"p999_us\": %.0f, \"errors\": %d}\n",
              job.phase.c_str(), job.threads, all.size(), seconds, all.size() / seconds, quantile(0.5), quantile(0.99), quantile(0.999),
              errors.load());
  std::fflush(stdout);
  std::_Exit(errors == 0 ? 0 : 1);
}
