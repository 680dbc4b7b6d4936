package redisstore_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// A server that closes idle connections costs nothing without TLS, where a client notices before it uses one. With TLS
// each may cost a decision, whose policy's fail word decides; no breaker opens, and the next ones are decided by Redis.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	server := redistest.TLS(t)
	admin := server.Client(t)
	const idle = 6
	for _, secure := range []bool{false, true} {
		t.Run("TLS "+strconv.FormatBool(secure), func(t *testing.T) {
			addr := server.Addr()
			if secure {
				addr = server.TLSAddr
			}
			o := unhurried(redisstore.ClientOptions(addr))
			o.MinIdleConns = 0 // it is this test that opens them
			if secure {
				o.TLSConfig = server.Config
			}
			rdb := redis.NewClient(o.Simple())
			t.Cleanup(func() { _ = rdb.Close() })
			var conns []*redis.Conn
			for range idle {
				conn := rdb.Conn()
				require.NoError(t, conn.Ping(t.Context()).Err())
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close(), "it goes back into the pool")
			}
			require.EqualValues(t, idle, rdb.PoolStats().IdleConns)

			require.NoError(t, admin.ConfigSet(t.Context(), "timeout", "1").Err())
			await(t, "the server closes all but the one that asks", func() bool {
				clients, err := admin.ClientList(t.Context()).Result()
				return err == nil && strings.Count(clients, "\n") == 1
			})
			require.NoError(t, admin.ConfigSet(t.Context(), "timeout", "0").Err())

			s := newStore(t, rdb, redisstore.Options{Deadline: patient})
			take := core.Take{Policy: core.MustParse("idle-" + strconv.FormatBool(secure) + ": 1000/1d fixed-window"), Key: "k", Cost: 1}
			failures, decided := 0, int64(0)
			for range 3 * idle {
				res, err := s.Take(t.Context(), take)
				if err == nil {
					decided++
					assert.Equal(t, 1000-decided, res.Remaining, "what was asked of a closed connection was not charged")
					continue
				}
				failures++
				var failed *core.StoreError
				require.True(t, errors.As(err, &failed), "%v", err)
				assert.Equal(t, core.ClassLost, failed.Class, "%v", err)
			}
			t.Logf("%d of %d decisions fail", failures, 3*idle)
			if secure {
				assert.LessOrEqual(t, failures, idle)
			} else {
				assert.Zero(t, failures)
			}
		})
	}
}
