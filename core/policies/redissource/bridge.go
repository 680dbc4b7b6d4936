package redissource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/core/policies"
)

// A bridge is a line and the bytes of a document: "weir-bridge 1 <digest>\n{...}".
const bridgeFormat = "weir-bridge 1 "

const maxBridge = policies.MaxSize + 256

// cross takes up the document of the bridge. A bridge that cannot be used is reported, and never in the way: a disk that
// stands still keeps nobody from following Redis.
func (s *Source) cross(ctx context.Context) {
	if s.o.Bridge == "" {
		return
	}
	s.keeping = true // nothing is written before
	crossed := make(chan struct{})
	s.running.Go(func() {
		defer close(crossed)
		s.pace.disk()
		d, digest, err := readBridge(s.o.Bridge, s.app)
		s.mu.Lock()
		switch {
		case errors.Is(err, fs.ErrNotExist): // as at the first start
		case err != nil:
			s.bridgeTrouble(err)
		case s.held.compare(head{d.Version, digest}) == later: // also where Redis was faster
			s.held.taken(d, digest)
			s.show(d)
			s.unkept = nil
		}
		s.keeping = false
		s.mu.Unlock()
		s.keep()
	})
	timer := time.NewTimer(s.pace.deadline)
	defer timer.Stop()
	select {
	case <-crossed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// keep writes the bridge, if there is something to write and it is not being written. What could not be written is tried
// again after the next read.
func (s *Source) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Bridge == "" || s.unkept == nil || s.keeping {
		return
	}
	s.keeping = true
	s.running.Go(func() {
		for s.keepNext() { // again, if there was another change meanwhile
		}
	})
}

// keepNext writes what is to be written, and reports whether there may be more.
func (s *Source) keepNext() bool {
	s.mu.Lock()
	a := s.unkept
	s.unkept, s.keeping = nil, a != nil
	s.mu.Unlock()
	if a == nil {
		return false
	}
	s.pace.disk()
	err := writeBridge(s.o.Bridge, a.head.digest, a.data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.bridge = ""
		return true
	}
	s.bridgeTrouble(err)
	if s.unkept == nil {
		s.unkept = a
	}
	s.keeping = false
	return false
}

func (s *Source) bridgeTrouble(err error) {
	s.bridge = err.Error()
	s.log.warn("bridge", "the file of Options.Bridge is of no use; the next start goes by Redis or by the code", err)
}

// readBridge returns the document that writeBridge has written, and its digest.
func readBridge(path, app string) (*policies.Document, string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	if !info.Mode().IsRegular() { // opening a pipe might never return
		return nil, "", fmt.Errorf("%s is not a regular file, but has the mode %v; give the name of a file", path, info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBridge+1))
	if err != nil {
		return nil, "", err
	}
	return parseBridge(data, app)
}

func parseBridge(data []byte, app string) (*policies.Document, string, error) {
	line, document, found := bytes.Cut(data, []byte("\n"))
	digest, is := bytes.CutPrefix(line, []byte(bridgeFormat))
	switch {
	case !found || !is:
		return nil, "", fmt.Errorf("the file begins with %.40q; expected %q and a digest, as a Source writes it", line, bridgeFormat)
	case len(document) > policies.MaxSize:
		return nil, "", fmt.Errorf("the file has more than %d bytes", policies.MaxSize)
	case policies.Digest(document) != string(digest):
		return nil, "", errors.New("the digest in the file is not that of the document: somebody has changed it, or the disk has")
	}
	d, err := policies.DecodePublished(document)
	switch {
	case err != nil:
		return nil, "", err
	case d.App != app:
		return nil, "", fmt.Errorf("the file is of the app %q, and this is %q: give each app a file", d.App, app)
	case d.Version.Generation < 1 || d.Version.Revision < 1:
		return nil, "", errors.New("the document in the file has no revision")
	}
	return d, string(digest), nil
}

// writeBridge writes the file in whole or not at all, also if the machine stops meanwhile. What a program leaves behind
// that is killed here has a name of which there is one.
func writeBridge(path, digest, document string) error {
	next := path + ".next"
	_ = os.Remove(next)
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(bridgeFormat + digest + "\n" + document)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the new name of a file outlive the machine. Where directories cannot be synced, as on Windows, nothing
// is lost but that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync()
	return nil
}
