package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"go-hep.org/x/hep/xrootd/xrdfs"
	"go-hep.org/x/hep/xrootd/xrdio"
	"go-hep.org/x/hep/xrootd/xrdproto"
	"go-hep.org/x/hep/xrootd/xrdproto/locate"
	"go-hep.org/x/hep/xrootd/xrdproto/ping"
	"go-hep.org/x/hep/xrootd/xrdproto/prepare"
	"go-hep.org/x/hep/xrootd/xrdproto/protocol"
	"go-hep.org/x/hep/xrootd/xrdproto/query"
)

var operations = map[string]func(*state, *request) (interface{}, error){
	// The session.
	"ping": func(s *state, r *request) (interface{}, error) { return s.ask(nil, &ping.Request{}) },
	"protocol": func(s *state, r *request) (interface{}, error) {
		var resp protocol.Response
		_, err := s.ask(&resp, protocol.NewRequest(0x310, true))
		return resp, err
	},
	"query": func(s *state, r *request) (interface{}, error) {
		var resp query.Response
		_, err := s.ask(&resp, &query.Request{Query: r.Code, Args: []byte(r.Path)})
		return string(resp.Data), err
	},
	"locate": func(s *state, r *request) (interface{}, error) {
		var resp locate.Response
		_, err := s.ask(&resp, &locate.Request{Path: r.Path})
		return string(resp.Data), err
	},
	"prepare": func(s *state, r *request) (interface{}, error) {
		var resp prepare.Response
		_, err := s.ask(&resp, &prepare.Request{Options: prepare.Stage, Paths: r.Paths})
		return string(resp.Data), err
	},

	// Names.
	"dirlist": func(s *state, r *request) (interface{}, error) { return s.fs.Dirlist(s.ctx, r.Path) },
	"stat":    func(s *state, r *request) (interface{}, error) { return s.fs.Stat(s.ctx, r.Path) },
	"statx":   func(s *state, r *request) (interface{}, error) { return s.fs.Statx(s.ctx, r.Paths) },
	"vfs":     func(s *state, r *request) (interface{}, error) { return s.fs.VirtualStat(s.ctx, r.Path) },
	"mkdir":   func(s *state, r *request) (interface{}, error) { return nil, s.fs.Mkdir(s.ctx, r.Path, r.Mode) },
	"mkdirall": func(s *state, r *request) (interface{}, error) {
		return nil, s.fs.MkdirAll(s.ctx, r.Path, r.Mode)
	},
	"rename":    func(s *state, r *request) (interface{}, error) { return nil, s.fs.Rename(s.ctx, r.Path, r.To) },
	"chmod":     func(s *state, r *request) (interface{}, error) { return nil, s.fs.Chmod(s.ctx, r.Path, r.Mode) },
	"rm":        func(s *state, r *request) (interface{}, error) { return nil, s.fs.RemoveFile(s.ctx, r.Path) },
	"rmdir":     func(s *state, r *request) (interface{}, error) { return nil, s.fs.RemoveDir(s.ctx, r.Path) },
	"removeall": func(s *state, r *request) (interface{}, error) { return nil, s.fs.RemoveAll(s.ctx, r.Path) },
	"truncate":  func(s *state, r *request) (interface{}, error) { return nil, s.fs.Truncate(s.ctx, r.Path, r.Size) },

	// Open files, by their place in the list of those opened.
	"open": func(s *state, r *request) (interface{}, error) {
		f, err := s.fs.Open(s.ctx, r.Path, r.Mode, r.Options)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
		return map[string]interface{}{"file": len(s.files) - 1, "info": f.Info(), "compression": f.Compression()}, nil
	},
	"read": func(s *state, r *request) (interface{}, error) {
		data := make([]byte, r.Length)
		n, err := s.files[r.File].ReadAt(data, r.Offset)
		return data[:n], err
	},
	"write": func(s *state, r *request) (interface{}, error) {
		return s.files[r.File].WriteAt(r.Data, r.Offset)
	},
	"verifywrite": func(s *state, r *request) (interface{}, error) {
		return nil, s.files[r.File].VerifyWriteAt(s.ctx, r.Data, r.Offset)
	},
	"fsync":     func(s *state, r *request) (interface{}, error) { return nil, s.files[r.File].Sync(s.ctx) },
	"fstat":     func(s *state, r *request) (interface{}, error) { return s.files[r.File].Stat(s.ctx) },
	"fvfs":      func(s *state, r *request) (interface{}, error) { return s.files[r.File].StatVirtualFS(s.ctx) },
	"ftruncate": func(s *state, r *request) (interface{}, error) { return nil, s.files[r.File].Truncate(s.ctx, r.Size) },
	"close":     func(s *state, r *request) (interface{}, error) { return nil, s.files[r.File].Close(s.ctx) },
	"closeverify": func(s *state, r *request) (interface{}, error) {
		return nil, s.files[r.File].CloseVerify(s.ctx, r.Size)
	},

	// Many at once.
	"fetch": fetch,
	"store": store,
	"many":  many,

	// xrdio.
	"xopen": func(s *state, r *request) (interface{}, error) {
		f, err := xrdio.Open(r.Path)
		if err != nil {
			return nil, err
		}
		s.ios = append(s.ios, f)
		return map[string]interface{}{"file": len(s.ios) - 1, "name": f.Name()}, nil
	},
	"xread": func(s *state, r *request) (interface{}, error) {
		data := make([]byte, r.Length)
		n, err := s.ios[r.File].Read(data)
		if errors.Is(err, io.EOF) {
			return map[string]interface{}{"data": data[:n], "end": true}, nil
		}
		return map[string]interface{}{"data": data[:n], "end": false}, err
	},
	"xreadat": func(s *state, r *request) (interface{}, error) {
		data := make([]byte, r.Length)
		n, err := s.ios[r.File].ReadAt(data, r.Offset)
		return data[:n], err
	},
	"xseek":  func(s *state, r *request) (interface{}, error) { return s.ios[r.File].Seek(r.Offset, r.Whence) },
	"xwrite": func(s *state, r *request) (interface{}, error) { return s.ios[r.File].Write(r.Data) },
	"xstat": func(s *state, r *request) (interface{}, error) {
		info, err := s.ios[r.File].Stat()
		if err != nil {
			return nil, err
		}
		return map[string]interface{}{"size": info.Size(), "dir": info.IsDir(), "mtime": info.ModTime().Unix()}, nil
	},
	"xcopy": func(s *state, r *request) (interface{}, error) {
		local, err := os.Create(r.Local)
		if err != nil {
			return nil, err
		}
		defer local.Close()
		return io.Copy(local, s.ios[r.File])
	},
	"xclose": func(s *state, r *request) (interface{}, error) { return nil, s.ios[r.File].Close() },

	"root": root,
}

func (s *state) ask(resp xrdproto.Response, req xrdproto.Request) (interface{}, error) {
	_, err := s.cli.Send(s.ctx, resp, req)
	return nil, err
}

// inPieces calls `do` for each piece of a file, by several goroutines; the first error.
func inPieces(size int64, r *request, do func(begin, end int64) error) error {
	pieces := make(chan int64)
	failed := make(chan error, r.Workers)
	var all sync.WaitGroup
	for i := 0; i < r.Workers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			var mine error
			for begin := range pieces {
				end := begin + int64(r.Length)
				if end > size {
					end = size
				}
				if mine == nil {
					mine = do(begin, end)
				}
			}
			failed <- mine
		}()
	}
	for begin := int64(0); begin < size; begin += int64(r.Length) {
		pieces <- begin
	}
	close(pieces)
	all.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

func fetch(s *state, r *request) (interface{}, error) {
	f, err := s.fs.Open(s.ctx, r.Path, xrdfs.OpenModeOwnerRead, xrdfs.OpenOptionsOpenRead)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat(s.ctx)
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size())
	err = inPieces(info.Size(), r, func(begin, end int64) error {
		n, err := f.ReadAt(data[begin:end], begin)
		if err == nil && int64(n) != end-begin {
			err = fmt.Errorf("%d bytes at %d instead of %d", n, begin, end-begin)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := f.Close(s.ctx); err != nil {
		return nil, err
	}
	return nil, os.WriteFile(r.Local, data, 0o644)
}

func store(s *state, r *request) (interface{}, error) {
	data, err := os.ReadFile(r.Local)
	if err != nil {
		return nil, err
	}
	f, err := s.fs.Open(s.ctx, r.Path, r.Mode, r.Options)
	if err != nil {
		return nil, err
	}
	err = inPieces(int64(len(data)), r, func(begin, end int64) error {
		_, err := f.WriteAt(data[begin:end], begin)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := f.Sync(s.ctx); err != nil {
		return nil, err
	}
	return nil, f.CloseVerify(s.ctx, int64(len(data)))
}

// many has each of several goroutines work in a directory of its own, over the one connection.
func many(s *state, r *request) (interface{}, error) {
	failed := make(chan error, r.Workers)
	for i := 0; i < r.Workers; i++ {
		go func(i int) {
			err := oneOfMany(s, fmt.Sprintf("%s/%d", r.Path, i), bytes.Repeat([]byte{byte(i)}, r.Length))
			if err != nil {
				err = fmt.Errorf("goroutine %d: %w", i, err)
			}
			failed <- err
		}(i)
	}
	texts := []string{}
	for i := 0; i < r.Workers; i++ {
		if err := <-failed; err != nil {
			texts = append(texts, err.Error())
		}
	}
	return texts, nil
}

func oneOfMany(s *state, dir string, data []byte) error {
	const mode = xrdfs.OpenModeOwnerRead | xrdfs.OpenModeOwnerWrite
	if err := s.fs.MkdirAll(s.ctx, dir+"/a/b", mode|xrdfs.OpenModeOwnerExecute); err != nil {
		return err
	}
	f, err := s.fs.Open(s.ctx, dir+"/a/b/new", mode, xrdfs.OpenOptionsNew|xrdfs.OpenOptionsOpenUpdate)
	if err != nil {
		return err
	}
	for round := 0; round < 3; round++ {
		if _, err := f.WriteAt(data, int64(round*len(data))); err != nil {
			return err
		}
	}
	if err := f.Close(s.ctx); err != nil {
		return err
	}
	if err := s.fs.Rename(s.ctx, dir+"/a/b/new", dir+"/file"); err != nil {
		return err
	}
	info, err := s.fs.Stat(s.ctx, dir+"/file")
	if err != nil {
		return err
	}
	if info.Size() != int64(3*len(data)) {
		return fmt.Errorf("%d bytes", info.Size())
	}
	f, err = s.fs.Open(s.ctx, dir+"/file", mode, xrdfs.OpenOptionsOpenRead)
	if err != nil {
		return err
	}
	got := make([]byte, len(data))
	for round := 0; round < 3; round++ {
		if n, err := f.ReadAt(got, int64(round*len(data))); err != nil || n != len(data) || !bytes.Equal(got, data) {
			return fmt.Errorf("round %d: %d bytes, the right ones: %v, %w", round, n, bytes.Equal(got, data), err)
		}
	}
	if err := f.Close(s.ctx); err != nil {
		return err
	}
	return s.fs.RemoveAll(s.ctx, dir+"/a")
}
