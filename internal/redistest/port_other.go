//go:build !linux

package redistest

import "net"

// reserve finds a free port of 127.0.0.1. Only Linux can keep it: elsewhere somebody else may be given
// it while nobody listens there.
func reserve() (port int, free func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	return l.Addr().(*net.TCPAddr).Port, func() {}, l.Close()
}
