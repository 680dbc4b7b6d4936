package redistest

import (
	"flag"
	"os"
	"sync"
	"testing"
)

// Main runs the tests of a package and ends what they share, for its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//
// Tests with servers wait more than they compute. Unless -parallel says otherwise, Main
// lets more of those that call t.Parallel run at once than there are processors.
func Main(m *testing.M) int {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err) // the flag is the testing package's
		}
	}
	defer endShared()
	return m.Run()
}

var shared struct {
	mu   sync.Mutex
	ends []func()
}

func endShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, end := range shared.ends {
		defer end() // the latest first
	}
	shared.ends = nil
}

// Share returns a function that starts servers for the first test that asks and hands the
// same ones to every other; they live until [Main] ends them. It is for tests that neither
// break the servers nor count what is asked of them, and whose keys are their own.
func Share[T any](start func(testing.TB) T) func(testing.TB) T {
	var mu sync.Mutex
	var servers T
	started := false
	return func(t testing.TB) T {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !started { // a start that failed has ended its test, and the next one tries again
			servers = start(outliving{t})
			started = true
		}
		return servers
	}
}

// outliving is a test whose cleanups wait for the end of the package's tests.
type outliving struct{ testing.TB }

func (t outliving) Cleanup(f func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.ends = append(shared.ends, f)
}

func (t outliving) TempDir() string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
