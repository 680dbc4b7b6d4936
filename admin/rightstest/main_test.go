package rightstest_test

import (
	"os"
	"testing"

	"github.com/weir-go/weir/admin/internal/sqltest"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }
