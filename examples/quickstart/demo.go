package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/weir-go/weir/core"
)

// mostRequests is how many requests a framework is sent at most.
const mostRequests = 20

// runDemo starts every framework, sends each a burst of GET /hello by a user of its
// own, and prints the answers as a table and in short.
func runDemo(out io.Writer, policy core.Policy, build builder) error {
	burst := int64(core.MaxRate)
	for _, limit := range policy.Limits() {
		burst = min(burst, limit.Burst)
	}
	requests := min(burst+2, mostRequests)
	run := rand.Text()[:8] // runs that share a Redis do not meet
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "framework\trequest\tstatus\tX-RateLimit-Limit\t-Remaining\t-Reset\tRetry-After")
	var sums []string
	for _, name := range names() {
		statuses, err := demonstrate(table, name, "demo-"+name+"-"+run, int(requests), build)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sums = append(sums, sumUp(statuses))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", together(names(), sums))
	if burst >= mostRequests {
		fmt.Fprintf(out, "%d requests are the most it sends; a policy with a smaller burst shows refusals too\n", mostRequests)
	}
	return nil
}

// demonstrate sends the requests of one user to one framework and writes a line of
// the table for each.
func demonstrate(table io.Writer, name, user string, requests int, build builder) (statuses []int, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	stop, err := frameworks[name](listener, build)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, stop()) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range requests {
		req, err := http.NewRequest(http.MethodGet, "http://"+listener.Addr().String()+"/hello", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set(demoUser, user)
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		statuses = append(statuses, resp.StatusCode)
		h := resp.Header
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", name, i+1, resp.Status,
			h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"), h.Get("Retry-After"))
	}
	return statuses, nil
}

// sumUp puts answers into words: "5 allowed, then 429".
func sumUp(statuses []int) string {
	var parts []string
	for len(statuses) > 0 {
		n := 1
		for n < len(statuses) && statuses[n] == statuses[0] {
			n++
		}
		if statuses[0] == http.StatusOK {
			parts = append(parts, fmt.Sprintf("%d allowed", n))
		} else {
			parts = append(parts, fmt.Sprint(statuses[0]))
		}
		statuses = statuses[n:]
	}
	return strings.Join(parts, ", then ")
}

// together says once what holds for all frameworks.
func together(names, sums []string) string {
	var each []string
	same := true
	for i, sum := range sums {
		same = same && sum == sums[0]
		each = append(each, names[i]+": "+sum)
	}
	if same {
		return "each framework: " + sums[0]
	}
	return strings.Join(each, "\n")
}
