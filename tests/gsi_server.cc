// The server's side of `gsi` of XRootD 6.2, from the libraries of the Python package `xrootd`, which has no server: it judges weir's client.
//
// Usage: gsi_server OPTIONS, which are those of `sec.protocol gsi`. Writes what a server offers. Then, for each message of a client on its
// standard input, it writes a letter and a text: `M`, the next message of the server; `D`, the client is let in; `E`, it is not. A message and a
// text begin with their length (4 bytes, big end first). One process is for one client.

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "XrdNet/XrdNetAddr.hh"
#include "XrdOuc/XrdOucErrInfo.hh"
#include "XrdSec/XrdSecInterface.hh"

extern "C" char *XrdSecProtocolgsiInit(const char, const char *, XrdOucErrInfo *);
extern "C" XrdSecProtocol *XrdSecProtocolgsiObject(const char, const char *, XrdNetAddrInfo &, const char *, XrdOucErrInfo *);

static const uint32_t LENGTH_MAX = 1 << 20;

static void say(FILE *out, char kind, const std::string &text)
{
   uint32_t length = htonl(text.size());
   fputc(kind, out);
   fwrite(&length, sizeof(length), 1, out);
   fwrite(text.data(), 1, text.size(), out);
   fflush(out);
}

int main(int argc, char **argv)
{
   if (argc != 2) return 2;
   // The library writes its own lines to standard output.
   FILE *out = fdopen(dup(1), "w");
   dup2(2, 1);
   XrdOucErrInfo error;
   char *offer = XrdSecProtocolgsiInit('s', argv[1], &error);
   if (!offer || !*offer) {
      fprintf(stderr, "%s\n", error.getErrText());
      return 1;
   }
   say(out, 'O', offer);
   XrdNetAddr address;
   address.Set("127.0.0.1", 0);
   XrdSecProtocol *gsi = XrdSecProtocolgsiObject('s', "localhost", address, offer, &error);
   uint32_t length;
   while (gsi && fread(&length, sizeof(length), 1, stdin) == 1) {
      length = ntohl(length);
      if (length > LENGTH_MAX) return 1;
      char *bytes = (char *)malloc(length);
      if (fread(bytes, 1, length, stdin) != length) return 1;
      XrdSecCredentials shown(bytes, length);
      XrdSecParameters *next = 0;
      int result = gsi->Authenticate(&shown, &next, &error);
      if (result > 0 && next) {
         say(out, 'M', std::string(next->buffer, next->size));
      } else if (result == 0) {
         say(out, 'D', gsi->Entity.name ? gsi->Entity.name : "");
      } else {
         say(out, 'E', error.getErrText());
      }
      delete next;
   }
   return 0;
}
