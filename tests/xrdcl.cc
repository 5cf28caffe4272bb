// Functions of the stock client library that no stock command or binding offers: vector writes and checkpoints of XrdCl::File.
// Reads commands from standard input, one a line. Answers each with one line, `ok` or `error NUMBER TEXT`.
//   open URL | write OFFSET COUNT CHARACTER | writev OFFSET:COUNT:CHARACTER... | truncate LENGTH | sync | close
//   begin | commit | rollback | ckpwrite OFFSET COUNT CHARACTER | ckpwritev OFFSET COUNT:CHARACTER...
#include <sys/uio.h>

#include <algorithm>
#include <deque>
#include <future>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClXRootDResponses.hh>

// XrdCl::File lets these classes of its declarative interface call the functions used here. Their headers are not installed.
namespace XrdCl {
template <bool> class CheckpointImpl {
  public:
    static XRootDStatus call(File &file, kXR_char code, ResponseHandler *handler) { return file.Checkpoint(code, handler); }
};
template <bool> class ChkptWrtImpl {
  public:
    static XRootDStatus call(File &file, uint64_t offset, const std::string &data, ResponseHandler *handler) {
        return file.ChkptWrt(offset, data.size(), data.data(), handler);
    }
};
template <bool> class ChkptWrtVImpl {
  public:
    static XRootDStatus call(File &file, uint64_t offset, const std::vector<iovec> &parts, ResponseHandler *handler) {
        return file.ChkptWrtV(offset, parts.data(), parts.size(), handler);
    }
};
}  // namespace XrdCl

using namespace XrdCl;

// Keeps the single answer, which arrives on a thread of the library.
class Answer : public ResponseHandler {
  public:
    void HandleResponse(XRootDStatus *status, AnyObject *response) override {
        status_.set_value(*status);
        delete status;
        delete response;
    }
    XRootDStatus wait() { return status_.get_future().get(); }

  private:
    std::promise<XRootDStatus> status_;
};

template <typename Call> static XRootDStatus wait_for(Call call) {
    Answer answer;
    XRootDStatus sent = call(&answer);
    return sent.IsOK() ? answer.wait() : sent;
}

static XRootDStatus run(File &file, const std::string &command, std::istringstream &words) {
    uint64_t offset = 0, count = 0;
    char letter = 0, colon = 0;
    if (command == "open") {
        std::string url;
        words >> url;
        return file.Open(url, OpenFlags::Update);
    }
    if (command == "sync") return file.Sync();
    if (command == "close") return file.Close();
    if (command == "begin") return wait_for([&](auto *handler) { return CheckpointImpl<true>::call(file, kXR_ckpBegin, handler); });
    if (command == "commit") return wait_for([&](auto *handler) { return CheckpointImpl<true>::call(file, kXR_ckpCommit, handler); });
    if (command == "rollback") return wait_for([&](auto *handler) { return CheckpointImpl<true>::call(file, kXR_ckpRollback, handler); });
    if (command == "truncate") {
        words >> count;
        return file.Truncate(count);
    }
    if (command == "write" || command == "ckpwrite") {
        words >> offset >> count >> letter;
        std::string data(count, letter);
        if (command == "write") return file.Write(offset, data.size(), data.data());
        return wait_for([&](auto *handler) { return ChkptWrtImpl<true>::call(file, offset, data, handler); });
    }
    std::deque<std::string> kept;
    if (command == "writev") {
        ChunkList chunks;
        while (words >> offset >> colon >> count >> colon >> letter) {
            kept.emplace_back(count, letter);
            chunks.emplace_back(offset, count, kept.back().data());
        }
        return file.VectorWrite(chunks);
    }
    if (command == "ckpwritev") {
        std::vector<iovec> parts;
        words >> offset;
        while (words >> count >> colon >> letter) {
            kept.emplace_back(count, letter);
            parts.push_back({kept.back().data(), kept.back().size()});
        }
        return wait_for([&](auto *handler) { return ChkptWrtVImpl<true>::call(file, offset, parts, handler); });
    }
    return XRootDStatus(stError, errInvalidOp, 0, "no such command: " + command);
}

int main() {
    File file;
    std::string line, command;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        words >> command;
        XRootDStatus status = run(file, command, words);
        if (status.IsOK()) std::cout << "ok" << std::endl;
        else {
            std::string text = status.ToStr();
            std::replace(text.begin(), text.end(), '\n', ' ');
            std::cout << "error " << status.errNo << " " << text << std::endl;
        }
    }
}
