package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/bench/internal/network"
	"github.com/weir-go/weir/internal/hosttest"
)

// wayEnv makes a process of this program the way to a server. Its value is the server's address and the time that a
// round trip is to take longer.
const wayEnv = "WEIR_CROWD_WAY"

// way starts a process that carries connections to a server, each round trip so much later, and returns its address. As
// a goroutine it would wait for a processor behind the crowd, which no network does. It ends with tb.
func way(tb testing.TB, to string, distance time.Duration) (addr string) {
	tb.Helper()
	p := hosttest.Start(tb, wayEnv, to+" "+distance.String())
	if _, err := fmt.Fscanln(p.Out, &addr); err != nil {
		tb.Fatalf("the way to %s did not begin: %v", to, err)
	}
	return addr
}

// serveWay carries connections until in ends. It prints its address.
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

// join carries a connection both ways until one side ends it.
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
