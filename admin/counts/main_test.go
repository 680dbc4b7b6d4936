package counts_test

import (
	"os"
	"testing"

	"github.com/weir-go/weir/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
