package observe

import "strings"

// The attributes of metrics, and of the log's groups. In Prometheus they are labels with "_" in the place of ".".
const (
	AttrPolicy   = "weir.policy"    // the policy's name
	AttrRule     = "weir.rule"      // the place of the rule in the Config, such as "Rule" or "Rules[1]"
	AttrTier     = "weir.tier"      // the sender's tier, or ""
	AttrOutcome  = "weir.outcome"   // "admitted", "at-limit", "refused" or "never"
	AttrFrom     = "weir.from"      // what has decided: "store", "deny-cache", "circuit", "process", "fallback", "open", "closed" or "none"
	AttrShadow   = "weir.shadow"    // "true" if the policy is on trial and refuses nothing
	AttrRevision = "weir.revision"  // the revision of a Source's Set
	AttrLimits   = "weir.limits"    // the text of the policy without its name
	AttrLane     = "weir.lane"      // what is done in the background: "renewals", "releases", "refunds", "charges" or "hand-backs"
	AttrBehind   = "weir.behind"    // "true" of round trips that no request waits for
	AttrServer   = "server.address" // the address of a Redis server
	AttrError    = "error.type"     // the class of a core.StoreError
)

// Other is the value of the attributes of all series beyond Options.MaxSeries, and of servers beyond the 64th.
const Other = "other"

// Kind is the kind of a [Metric].
type Kind uint8

// The kinds of metrics.
const (
	Counter    Kind = iota // a sum that only grows, since the program began
	Gauge                  // a value of now
	Histograms             // durations in buckets
)

// Metric is an instrument: its name and what it measures. The names follow aspnetcore.rate_limiting.*, the one stable
// convention of OpenTelemetry for rate limiters.
type Metric struct {
	// Name is the name as OpenTelemetry has it, such as "weir.decision.duration".
	Name string
	// Unit is the unit in UCUM, such as "s" or "{decision}", or "" if the value has none.
	Unit string
	// Help is a sentence that says what is measured.
	Help string
	Kind Kind
	// Attributes are the names of the attributes, in the order in which a [Point] has their values.
	Attributes []string
	// Bounds are the bounds of the buckets of Histograms where they are classic ones, in seconds.
	Bounds []float64
}

// The bounds of classic buckets, in seconds: those of round trips are narrow about the deadline of a Redis store, which
// is 50ms unless set otherwise, and those of waits go as far as a policy lets a request wait.
var (
	shortBounds = [...]float64{
		0.00001, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.1, 0.25, 0.5, 1,
	}
	longBounds = []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
)

// The metrics.
var (
	decisions = Metric{
		"weir.decisions", "{decision}", "Decisions of rules on requests.", Counter,
		[]string{AttrPolicy, AttrRule, AttrTier, AttrOutcome, AttrFrom, AttrShadow},
		nil,
	}
	decisionDuration = Metric{
		"weir.decision.duration", "s", "Time that decisions took, without the wait for a turn; of one in 32 of those in the process.", Histograms,
		[]string{AttrPolicy, AttrFrom},
		shortBounds[:],
	}
	timeInQueue = Metric{
		"weir.request.time_in_queue", "s", "Time that requests waited for their turn.", Histograms, []string{AttrPolicy}, longBounds,
	}
	queuedRequests = Metric{
		"weir.queued_requests", "{request}", "Requests that wait for their turn now.", Gauge, []string{AttrPolicy}, nil,
	}
	activePermits = Metric{
		"weir.active_permits", "{permit}", "Permits that this process holds now.", Gauge, []string{AttrPolicy}, nil,
	}
	unitsSettled = Metric{
		"weir.units.settled", "{unit}", "Units that requests have used in the end, of rules with Settle or After.", Counter, []string{AttrPolicy}, nil,
	}
	storeFailures = Metric{
		"weir.store.failures", "{failure}", "Decisions that the store did not make, by the class of its failure.", Counter,
		[]string{AttrError, AttrServer},
		nil,
	}
	storeDeadline = Metric{
		"weir.store.deadline", "s", "Time within which a decision of the store is answered or fails.", Gauge, nil, nil,
	}
	flightDuration = Metric{
		"weir.flight.duration", "s", "Time that round trips to a server took.", Histograms, []string{AttrServer, AttrBehind}, shortBounds[:],
	}
	flightCalls = Metric{
		"weir.flight.calls", "{call}", "Calls that round trips carried.", Counter, []string{AttrServer, AttrBehind}, nil,
	}
	flightMerged = Metric{
		"weir.flight.merged", "{call}", "Calls that were made together with an equal one of the same key.", Counter,
		[]string{AttrServer, AttrBehind},
		nil,
	}
	breakerOpen = Metric{
		"weir.breaker.open", "", "1 while the breaker of a server is open, with the class of the failure that has opened it.", Gauge,
		[]string{AttrServer, AttrBehind, AttrError},
		nil,
	}
	backgroundPending = Metric{
		"weir.background.pending", "{item}", "Renewals, releases, refunds and charges that wait for the store or are under way.",
		Gauge,
		[]string{AttrLane},
		nil,
	}
	backgroundLost = Metric{
		"weir.background.lost", "{item}", "Renewals, releases, refunds and charges that were given up.", Counter, []string{AttrLane}, nil,
	}
	backgroundOldest = Metric{
		"weir.background.oldest", "s", "Age of the oldest that waits or is under way.", Gauge, []string{AttrLane}, nil,
	}
	keysHeld = Metric{
		"weir.keys", "{key}", "Keys that the in-process store holds.", Gauge, nil, nil,
	}
	keysDisplaced = Metric{
		"weir.keys.displaced", "{key}", "Keys that were forgotten for others while they still limited somebody.", Counter, nil, nil,
	}
	policyInfo = Metric{
		"weir.policy.info", "", "1 for each policy in force.", Gauge, []string{AttrPolicy, AttrLimits}, nil,
	}
	policySetInfo = Metric{
		"weir.policy_set.info", "", "The number of guards in which the policies of a revision are in force.", Gauge,
		[]string{AttrRevision},
		nil,
	}
	policySetLag = Metric{
		"weir.policy_set.lag", "s", "Time since which the policies in force are not known to be the latest.", Gauge, nil, nil,
	}
)

// Metrics returns all metrics, in the order in which [Snapshot.Families] has them.
func Metrics() []Metric {
	return []Metric{
		decisions, decisionDuration, timeInQueue, queuedRequests, activePermits, unitsSettled, storeFailures, storeDeadline,
		flightDuration, flightCalls, flightMerged, breakerOpen, backgroundPending, backgroundLost, backgroundOldest,
		keysHeld, keysDisplaced, policyInfo, policySetInfo, policySetLag,
	}
}

// Prometheus returns the name in Prometheus, as OpenTelemetry's translation makes it, such as
// "weir_decision_duration_seconds" or "weir_decisions_total".
func (m Metric) Prometheus() string {
	name := Label(m.Name)
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Label returns the name of an attribute in Prometheus, such as "weir_policy".
func Label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }
