package promweir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/observe/promweir"
)

// patience bounds every wait. Only a failure uses it up.
const patience = time.Minute

// await polls until ok returns nil.
func await(t *testing.T, what string, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, err, "%s: not within %v", what, patience)
		case <-tick.C:
		}
	}
}

// server is a Prometheus.
type server struct{ url string }

// startPrometheus starts a Prometheus with a configuration and files beside it. It ends with the test.
func startPrometheus(t *testing.T, config string, files map[string]string, args ...string) *server {
	t.Helper()
	path, dir := program(t, "prometheus"), t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	configFile := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(configFile, []byte(config), 0o600))
	for range 5 {
		// Somebody else may take the port before Prometheus does; then it ends.
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		require.NoError(t, l.Close())
		log, err := os.Create(filepath.Join(dir, "log"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cmd := exec.CommandContext(ctx, path, append([]string{
			"--config.file=" + configFile, "--storage.tsdb.path=" + t.TempDir(), "--web.listen-address=" + addr, "--log.level=warn",
		}, args...)...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			cancel()
			<-ended
			_ = log.Close()
		})
		s := &server{"http://" + addr}
		errEnded := errors.New("ended")
		await(t, "Prometheus is ready", func() error {
			select {
			case <-ended:
				err = errEnded
				return nil
			default:
			}
			err = s.get(t, "/-/ready", nil, nil)
			return err
		})
		if err == nil {
			return s
		}
		text, _ := os.ReadFile(log.Name())
		t.Logf("Prometheus ended: %s", text)
	}
	t.Fatal("Prometheus does not start")
	return nil
}

// get reads a page, or the data of an answer of the API.
func (s *server) get(t *testing.T, path string, values url.Values, data any) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path+"?"+values.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if data == nil {
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}
	var answer struct {
		Status, Error string
		Data          any
	}
	answer.Data = data
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// A result is a series of an answer.
type result struct {
	Metric map[string]string
	Value  [2]any   // of a query
	Values [][2]any // of a query of a range
}

// query returns the series of an expression now.
func (s *server) query(t *testing.T, expr string) []result {
	t.Helper()
	var data struct{ Result []result }
	require.NoError(t, s.get(t, "/api/v1/query", url.Values{"query": {expr}}, &data), expr)
	return data.Result
}

// history returns the series that an expression had since then.
func (s *server) history(t *testing.T, expr string, since time.Time) []result {
	t.Helper()
	var data struct{ Result []result }
	require.NoError(t, s.get(t, "/api/v1/query_range", url.Values{
		"query": {expr}, "step": {interval.String()},
		"start": {since.UTC().Format(time.RFC3339Nano)}, "end": {time.Now().UTC().Format(time.RFC3339Nano)},
	}, &data), expr)
	return data.Result
}

// interval is that of scrapes and of the rules.
const interval = 500 * time.Millisecond

// A Prometheus that asks for native histograms reads the buckets as they were counted.
func TestNativeIsRead(t *testing.T) {
	t.Parallel()
	program(t, "prometheus")
	o := newObserver(t)
	for i := range 1000 {
		e := refused("api")
		e.Took = time.Duration(i+1) * time.Millisecond
		o.Observe(e)
	}
	metrics := httptest.NewServer(promhttp.HandlerFor(registered(t, o, promweir.Options{Native: true}), promhttp.HandlerOpts{}))
	t.Cleanup(metrics.Close)
	targets := map[[2]string]string{{"one", "one"}: metrics.Listener.Addr().String()}
	rules := map[string]string{"weir.rules.yml": file(t, "weir.rules.yml")}
	p := startPrometheus(t, configure(targets), rules, "--enable-feature=native-histograms")
	for expr, want := range map[string]float64{
		"histogram_count(weir_decision_duration_seconds)":          1000,
		"histogram_sum(weir_decision_duration_seconds)":            500.5,
		"histogram_quantile(0.5, weir_decision_duration_seconds)":  0.5,
		"histogram_quantile(0.99, weir_decision_duration_seconds)": 0.99,
	} {
		var got []result
		await(t, expr, func() error {
			if got = p.query(t, expr); len(got) != 1 {
				return fmt.Errorf("%d series", len(got))
			}
			return nil
		})
		var value float64
		_, err := fmt.Sscan(fmt.Sprint(got[0].Value[1]), &value)
		require.NoError(t, err)
		assert.InEpsilon(t, want, value, 0.05, expr)
	}
}

// configure returns the configuration of a Prometheus that scrapes a target of each job and instance.
func configure(targets map[[2]string]string) string {
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: %v, scrape_timeout: %[1]v, evaluation_interval: %[1]v}\n", interval)
	config.WriteString("rule_files: [weir.rules.yml]\nscrape_configs:\n")
	jobs := map[string][]string{}
	for name, addr := range targets {
		target := fmt.Sprintf("{targets: [%q], labels: {instance: %q}}", addr, name[1])
		jobs[name[0]] = append(jobs[name[0]], target)
	}
	for job, targets := range jobs {
		fmt.Fprintf(&config, "- {job_name: %q, static_configs: [%s]}\n", job, strings.Join(targets, ", "))
	}
	return config.String()
}
