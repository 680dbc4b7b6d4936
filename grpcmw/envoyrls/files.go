package envoyrls

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Directory has the configuration in files, such as a ConfigMap that Kubernetes mounts, or the runtime directory of
// envoyproxy/ratelimit. All regular files in it and below it are read, whatever their names end with, and links to files
// are followed. What begins with ".." is left out: that is how Kubernetes keeps the versions of a ConfigMap.
type Directory struct {
	// Path is the directory.
	Path string
	// Prefix selects files: the path of a file below Path, with dots in the place of slashes, must begin with it. With
	// "config.", these are all in the directory config, and config.yaml. "" selects all. Directories without selected
	// files are left alone: they may be unreadable.
	Prefix string
	// SkipDotFiles leaves out files and directories whose names begin with a dot.
	SkipDotFiles bool
}

// The bounds of what is read of a directory.
const (
	maxFiles     = 10_000
	maxFileBytes = 16 << 20 // of all files together
	maxFileDepth = 32
)

// fileInterval is the time between two looks at a directory.
const fileInterval = time.Second

// Follow loads the configuration in a directory, and again whenever the files have changed and stay the same for a
// second, until ctx is done. What cannot be used is logged once, and the last good configuration stays; so it does if
// the files or the directory are gone.
//
// It looks at the files every second instead of asking the system for their changes, because links that are swapped,
// directories that are made anew, and file systems of networks need no care of their own then.
func (s *Server) Follow(ctx context.Context, d Directory) {
	f := follower{directory: d, load: s.Load, log: s.log()}
	ticks := time.NewTicker(fileInterval)
	defer ticks.Stop()
	for f.look(); ; f.look() {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// follower loads the files of a directory when they have changed.
type follower struct {
	directory Directory
	load      func(...File) error
	log       *slog.Logger

	began  bool
	loaded [sha256.Size]byte // the files that were loaded or refused last
	last   [sha256.Size]byte // those of the last look
	full   bool              // there were files among loaded
	failed string            // why the last look has failed
	logged string            // the reason that was logged last
}

// look looks at the files, and loads them if they are others, and the same at two looks: somebody may be writing them. The
// first look loads at once.
func (f *follower) look() {
	files, err := f.directory.Files()
	if err == nil && len(files) == 0 && f.full {
		err = fmt.Errorf("%s has no files any more; a file with a domain and no descriptors limits nothing", f.directory.Path)
	}
	if err != nil {
		// A look may see half of a change: only what two looks see is said.
		if reason := err.Error(); reason != f.failed && f.began {
			f.failed = reason
		} else if f.failed = reason; reason != f.logged {
			f.logged = reason
			f.log.Error("weir: the files cannot be read, and the configuration from before holds", "error", err)
		}
		f.began = true
		return
	}
	f.failed, f.logged = "", ""
	sum := sumOf(files)
	steady := sum == f.last || !f.began
	f.last = sum
	if f.began && sum == f.loaded || !steady {
		return
	}
	f.began, f.loaded = true, sum
	switch err := f.load(files...); {
	case err != nil:
		f.log.Error("weir: the files cannot be used, and the configuration from before holds", "error", err)
		return
	case len(files) == 0:
		f.log.Warn("weir: there are no files, and so no limits", "directory", f.directory.Path)
	default:
		f.log.Info("weir: the files were loaded", "directory", f.directory.Path, "files", len(files))
	}
	f.full = len(files) > 0
}

// sumOf returns what no other files have.
func sumOf(files []File) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, file := range files {
		var n [16]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(file.Name)))
		binary.BigEndian.PutUint64(n[8:], uint64(len(file.Data)))
		_, _ = h.Write(n[:]) // a hash takes all
		_, _ = io.WriteString(h, file.Name)
		_, _ = h.Write(file.Data)
	}
	h.Sum(sum[:0])
	return sum
}

// Files reads the files, for [Server.Load]. Each has its path as its name. What cannot be read is an error.
func (d Directory) Files() ([]File, error) {
	r := directoryReader{Directory: d, left: maxFileBytes}
	// A link in the place of the directory itself is followed.
	if err := r.list(d.Path, "", 1); err != nil {
		return nil, err
	}
	return r.files, nil
}

type directoryReader struct {
	Directory

	files []File
	left  int64 // bytes
}

// list reads the files of a directory whose path below that of the Directory, with dots, is key.
func (r *directoryReader) list(path, key string, depth int) error {
	if depth > maxFileDepth {
		return fmt.Errorf("%s is more than %d directories deep", path, maxFileDepth)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "..") || r.SkipDotFiles && strings.HasPrefix(name, ".") {
			continue
		}
		below, key := filepath.Join(path, name), key+name
		var err error
		switch {
		case e.IsDir() && r.mayHold(key+"."):
			err = r.list(below, key+".", depth+1)
		case !e.IsDir() && strings.HasPrefix(key, r.Prefix):
			err = r.read(below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayHold reports whether files whose keys begin with key can be selected. Directories of others need not be readable.
func (r *directoryReader) mayHold(key string) bool {
	return strings.HasPrefix(key, r.Prefix) || strings.HasPrefix(r.Prefix, key)
}

func (r *directoryReader) read(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err // a link to a directory, or a pipe, which has no end
	}
	if len(r.files) == maxFiles {
		return fmt.Errorf("%s has more than %d files", r.Path, maxFiles)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, r.left+1))
	if err != nil {
		return err
	}
	if r.left -= int64(len(data)); r.left < 0 {
		return fmt.Errorf("the files of %s have more than %d bytes", r.Path, maxFileBytes)
	}
	r.files = append(r.files, File{Name: path, Data: data})
	return nil
}

// log returns the log of what goes on without a request.
func (s *Server) log() *slog.Logger { return cmp.Or(s.config.Log, slog.Default()) }
