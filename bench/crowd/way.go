package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/bench/internal/network"
)

// wayEnv makes a process of this program the way to a server: its value is the server's address and how far away that
// is to be.
const wayEnv = "WEIR_CROWD_WAY"

// way starts a process through which a server is so far away, and returns the address to connect to. It has a process
// of its own because a way does not wait for the processors of those who use it, as everything here does behind the
// crowd. It ends with tb.
func way(tb testing.TB, to string, distance time.Duration) (addr string) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self) // it ends with its standard input
	cmd.Env = append(os.Environ(), wayEnv+"="+to+" "+distance.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		tb.Fatalf("the way to %s did not begin: %v", to, err)
	}
	return addr
}

// serveWay is what a process does that is a way, until in ends. It says where it listens.
func serveWay(ctx context.Context, to, distance string, in io.Reader, out io.Writer) error {
	d, err := time.ParseDuration(distance)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	far := network.New(ctx, d)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go join(ctx, near, far, to)
		}
	}()
	fmt.Fprintln(out, listener.Addr())
	_, err = io.Copy(io.Discard, in)
	return err
}

// join carries what is said on a connection, and back, until one side ends it.
func join(ctx context.Context, near net.Conn, far *network.Network, to string) {
	defer near.Close()
	server, err := far.Dial(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer near.Close()
		_, _ = io.Copy(near, server)
	}()
	_, _ = io.Copy(server, near)
}

// isWay carries out what wayEnv asks for, if this process has it.
func isWay(ctx context.Context) (is bool, _ error) {
	text, is := os.LookupEnv(wayEnv)
	if !is {
		return false, nil
	}
	to, distance, ok := strings.Cut(text, " ")
	if !ok {
		return true, errors.New(wayEnv + " is to be an address and a duration")
	}
	return true, serveWay(ctx, to, distance, os.Stdin, os.Stdout)
}
