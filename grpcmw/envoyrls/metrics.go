package envoyrls

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
)

var counterHelp = [countersOfSeries]string{
	totalHits:   "Hits of a rule.",
	overLimit:   "Hits beyond the limit of a rule.",
	nearLimit:   "Hits within the limit of a rule, beyond the part that is near it.",
	withinLimit: "Hits within the limit of a rule.",
	shadowMode:  "Hits beyond the limit of a rule in shadow mode, which passed.",
}

// write writes the counters in the text format of Prometheus, with the names that the statsd exporter of
// envoyproxy/ratelimit gives them.
func (c *counters) write(w io.Writer) error {
	c.mu.RLock()
	all := make([]*series, 0, len(c.byLabels))
	for _, s := range c.byLabels {
		if s.counts[totalHits].Load() > 0 {
			all = append(all, s)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(all, func(a, b *series) int {
		return cmp.Or(strings.Compare(a.domain, b.domain), strings.Compare(a.key1, b.key1), strings.Compare(a.key2, b.key2))
	})
	var b []byte
	head := func(name, help string) {
		b = append(b, "# HELP "+name+" "+help+"\n# TYPE "+name+" counter\n"...)
	}
	for i, counter := range counterNames {
		name := "ratelimit_service_rate_limit_" + counter
		head(name, counterHelp[i])
		for _, s := range all {
			b = append(b, name...)
			b = appendLabel(b, '{', "domain", s.domain)
			b = appendLabel(b, ',', "key1", s.key1)
			if s.key2 != "" {
				b = appendLabel(b, ',', "key2", s.key2)
			}
			b = append(b, "} "...)
			b = append(strconv.AppendUint(b, s.counts[i].Load(), 10), '\n')
		}
	}
	single := func(name, label, help string, n uint64) {
		if help != "" {
			head(name, help)
		}
		b = append(append(append(b, name...), label...), ' ')
		b = append(strconv.AppendUint(b, n, 10), '\n')
	}
	single("ratelimit_service_rate_limit_domain_not_found", "",
		"Requests for a domain that the configuration has not.", c.unknownDomain.Load())
	single("ratelimit_service_global_shadow_mode", "",
		"Requests over a limit that passed in the shadow mode of the whole service.", c.shadow.Load())
	single("ratelimit_service_total_requests", `{grpc_method="ShouldRateLimit"}`, "Requests.", c.requests.Load())
	single("ratelimit_service_should_rate_limit_error", `{err_type="redis_error"}`,
		"Requests that failed: because of the store, or by a mistake in them.", c.storeErrors.Load())
	single("ratelimit_service_should_rate_limit_error", `{err_type="service_error"}`, "", c.serviceErrors.Load())
	single("ratelimit_service_config_load_success", "", "Configurations that were loaded.", c.loads.Load())
	single("ratelimit_service_config_load_error", "", "Configurations that were refused.", c.failedLoads.Load())
	_, err := w.Write(b)
	return err
}

// appendLabel appends a label behind another one, or behind the brace.
func appendLabel(b []byte, before byte, name, value string) []byte {
	b = append(append(append(b, before), name...), '=', '"')
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
