// Runs go-hep's XRootD client for the tests: `gohep ADDRESS USER` logs in, takes one JSON object a line (`do`, and what that needs), and
// answers each with a line: {"answer": ...} or {"error": {"code": ..., "text": ...}}, where code is the server's, or 0 if go-hep itself
// found the fault. It judges nothing.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"go-hep.org/x/hep/xrootd"
	"go-hep.org/x/hep/xrootd/xrdfs"
	"go-hep.org/x/hep/xrootd/xrdio"
	"go-hep.org/x/hep/xrootd/xrdproto"
)

type request struct {
	Do      string
	Path    string
	To      string
	Local   string
	Name    string
	Paths   []string
	Data    []byte
	File    int
	Mode    xrdfs.OpenMode
	Options xrdfs.OpenOptions
	Offset  int64
	Size    int64
	Length  int
	Whence  int
	Workers int
	Code    uint16
}

type fault struct {
	Code int32  `json:"code"`
	Text string `json:"text"`
}

type reply struct {
	Answer interface{} `json:"answer"`
	Error  *fault      `json:"error,omitempty"`
}

// What the requests before have opened.
type state struct {
	ctx   context.Context
	cli   *xrootd.Client
	fs    xrdfs.FileSystem
	files []xrdfs.File
	ios   []*xrdio.File
}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	var server xrdproto.ServerError
	if errors.As(err, &server) {
		return &fault{int32(server.Code), server.Message}
	}
	return &fault{0, err.Error()}
}

func main() {
	out := json.NewEncoder(os.Stdout)
	say := func(answer interface{}, err error) {
		if failed := out.Encode(reply{answer, faultOf(err)}); failed != nil {
			panic(failed)
		}
	}
	ctx := context.Background()
	cli, err := xrootd.NewClient(ctx, os.Args[1], os.Args[2])
	say(nil, err)
	if err != nil {
		return
	}
	s := &state{ctx: ctx, cli: cli, fs: cli.FS()}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			panic(err)
		}
		do, ok := operations[r.Do]
		if !ok {
			panic(fmt.Sprintf("no operation %q", r.Do))
		}
		say(do(s, &r))
	}
	say(nil, cli.Close())
}
