package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slotCount = 16384

	// nodeTimeout is the silence of another node after which a node takes it for dead. A node that
	// thinks so of two answers CLUSTERDOWN until it hears of them again, and on a machine that is busy or
	// stands still for a moment some are late: so it is longer than any test waits.
	nodeTimeout = 2 * patience
)

// Cluster is a Redis Cluster of three masters without replicas, each with a third of the slots.
type Cluster struct {
	// Nodes are the masters, in the order of the slots they start with.
	Nodes []*Server

	secure bool
}

// StartCluster starts a Cluster and returns when all nodes agree that it is complete. The args are
// passed to every node, for example "--cluster-require-full-coverage", "no", without which the
// loss of one node makes all of them answer CLUSTERDOWN after nodeTimeout. With [Certificate.Args]
// among them the nodes talk to each other by TLS, and name to clients that do their addresses for it.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	const size = 3
	c := &Cluster{Nodes: make([]*Server, size), secure: secure(args)}
	if c.secure {
		args = append([]string{"--tls-cluster", "yes"}, args...)
	}
	for i := range c.Nodes {
		c.Nodes[i] = startServer(t, func(p ports) ([]string, error) {
			return append(append(baseArgs(p, args),
				"--cluster-enabled", "yes",
				"--cluster-port", strconv.Itoa(p.bus),
				"--cluster-announce-ip", "127.0.0.1",
				"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
			), args...), nil
		})
	}
	for i, node := range c.Nodes {
		// Distinct epochs from the start spare the nodes the resolution of a conflict.
		node.text(t, "cluster", "set-config-epoch", i+1)
		node.text(t, "cluster", "addslotsrange", i*slotCount/size, (i+1)*slotCount/size-1)
	}
	for _, other := range c.Nodes[1:] {
		c.Nodes[0].text(t, "cluster", "meet", "127.0.0.1", c.port(other), other.ports.bus)
	}
	ctx, cancel := patient(t)
	defer cancel()
	for _, node := range c.Nodes {
		if err := poll(ctx, 10*time.Millisecond, func() error { return node.joined(ctx, size) }); err != nil {
			t.Fatalf("redistest: the cluster did not form: %v", err)
		}
	}
	return c
}

// joined returns nil if the node sees a complete cluster of that size.
func (s *Server) joined(ctx context.Context, size int) error {
	text, err := s.do(ctx, "cluster", "info").Text()
	if err != nil {
		return err
	}
	info := parseInfo(text)
	if info["cluster_state"] != "ok" || info["cluster_size"] != strconv.Itoa(size) ||
		info["cluster_slots_ok"] != strconv.Itoa(slotCount) {
		return fmt.Errorf("%s sees state %s, %s nodes with slots, %s slots", s.Addr(),
			info["cluster_state"], info["cluster_size"], info["cluster_slots_ok"])
	}
	return nil
}

// port is the one at which the nodes call each other.
func (c *Cluster) port(node *Server) int {
	if c.secure {
		return node.ports.tls
	}
	return node.ports.client
}

// Addrs returns the addresses of the nodes, those for TLS if they have a certificate.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		if addrs[i] = node.Addr(); c.secure {
			addrs[i] = node.TLSAddr()
		}
	}
	return addrs
}

// Client returns a client of the cluster with ContextTimeoutEnabled and the default options of go-redis, changed by mods.
// It is closed when the test ends.
func (c *Cluster) Client(t testing.TB, mods ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opts := &redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true}
	for _, mod := range mods {
		mod(opts)
	}
	client := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// NodeFor returns the node that owns the key's slot. While the slot migrates, that is still the
// node it leaves.
func (c *Cluster) NodeFor(t testing.TB, key string) *Server {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	for _, witness := range c.Nodes {
		if !witness.Running() {
			continue
		}
		slot, err := witness.do(ctx, "cluster", "keyslot", key).Int()
		if err != nil {
			t.Fatalf("redistest: the slot of %q: %v", key, err)
		}
		owner, err := c.owner(ctx, witness, slot)
		if err != nil {
			t.Fatalf("redistest: the node for %q: %v", key, err)
		}
		return owner
	}
	t.Fatal("redistest: no node of the cluster is running")
	return nil
}

// owner returns the node that owns the slot in the eyes of witness.
func (c *Cluster) owner(ctx context.Context, witness *Server, slot int) (*Server, error) {
	ranges, err := witness.do(ctx, "cluster", "slots").Slice()
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		// Each is [first slot, last slot, [host, port, id, ...], ...].
		fields := r.([]any)
		if int64(slot) < fields[0].(int64) || int64(slot) > fields[1].(int64) {
			continue
		}
		port := fields[2].([]any)[1].(int64)
		for _, node := range c.Nodes {
			if int64(node.ports.client) == port {
				return node, nil
			}
		}
	}
	return nil, fmt.Errorf("%s knows no owner of slot %d", witness.Addr(), slot)
}

// Migrating begins to move the key's slot to another node and returns in the middle: keys that
// exist are still served by the old owner, missing ones are redirected by ASK, and commands with
// several keys of which only some exist are answered by TRYAGAIN. The function it returns moves
// the keys, gives the slot to the new owner, and waits until all nodes know; it is to be called
// at most once, from the goroutine of t.
func (c *Cluster) Migrating(t testing.TB, key string) (finish func()) {
	t.Helper()
	from := c.NodeFor(t, key)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	slot := from.text(t, "cluster", "keyslot", key)
	fromID, toID := from.text(t, "cluster", "myid"), to.text(t, "cluster", "myid")
	// The receiver first: a redirection to a node that does not yet import would be sent back.
	to.text(t, "cluster", "setslot", slot, "importing", fromID)
	from.text(t, "cluster", "setslot", slot, "migrating", toID)
	return func() {
		t.Helper()
		c.finishMigration(t, slot, from, to, toID)
	}
}

func (c *Cluster) finishMigration(t testing.TB, slot string, from, to *Server, toID string) {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	for {
		keys, err := from.do(ctx, "cluster", "getkeysinslot", slot, 100).Slice()
		if err != nil {
			t.Fatalf("redistest: the keys of slot %s: %v", slot, err)
		}
		if len(keys) == 0 {
			break
		}
		migrate := []any{"migrate", "127.0.0.1", c.port(to), "", 0, patience.Milliseconds(), "keys"}
		from.text(t, append(migrate, keys...)...)
	}
	// The new owner first, so that there is always one.
	to.text(t, "cluster", "setslot", slot, "node", toID)
	from.text(t, "cluster", "setslot", slot, "node", toID)
	number, err := strconv.Atoi(slot)
	if err != nil {
		t.Fatalf("redistest: slot %q: %v", slot, err)
	}
	for _, witness := range c.Nodes {
		if !witness.Running() {
			continue
		}
		err := poll(ctx, 5*time.Millisecond, func() error {
			owner, err := c.owner(ctx, witness, number)
			if err == nil && owner != to {
				err = fmt.Errorf("%s has not heard of the new owner", witness.Addr())
			}
			return err
		})
		if err != nil {
			t.Fatalf("redistest: migration of slot %s: %v", slot, err)
		}
	}
}
