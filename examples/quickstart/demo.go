package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"text/tabwriter"
)

// burst is how many requests the demonstration sends to each framework.
const burst = 7

// runDemo starts every framework, sends each a burst of GET /hello by a user of its
// own, and prints the answers as a table.
func runDemo(out io.Writer, guards func(user any) (guards, error)) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "framework\trequest\tstatus\tX-RateLimit-Limit\t-Remaining\t-Reset\tRetry-After")
	for _, name := range names() {
		if err := demonstrate(table, name, guards); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return table.Flush()
}

func demonstrate(table io.Writer, name string, guards func(user any) (guards, error)) (err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop, err := frameworks[name](listener, guards)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, stop()) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range burst {
		req, err := http.NewRequest(http.MethodGet, "http://"+listener.Addr().String()+"/hello", nil)
		if err != nil {
			return err
		}
		req.Header.Set(demoUser, "demo-"+name)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		h := resp.Header
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", name, i+1, resp.Status,
			h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"), h.Get("Retry-After"))
	}
	return nil
}
