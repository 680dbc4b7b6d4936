package redistest

import (
	"os"
	"sync"
	"syscall"
)

// reserve finds a free port of 127.0.0.1 and keeps it until free is called. Nobody listens there, so
// connections are refused until somebody binds this very port.
//
// The socket that keeps it is bound and does not listen. The kernel gives such a port to nobody who
// asks for any, neither to listen nor to connect from; but to those who ask for it by its number and
// have set SO_REUSEADDR, as this socket has, and as both redis-server and [net.Listen] do.
func reserve() (port int, free func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	free = sync.OnceFunc(func() { _ = syscall.Close(fd) })
	if err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)); err == nil {
		err = os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(fd)
	}
	if err != nil {
		free()
		return 0, nil, err
	}
	return at.(*syscall.SockaddrInet4).Port, free, nil
}
