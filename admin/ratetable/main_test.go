package ratetable_test

import (
	"os"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/weir-go/weir/admin/internal/sqltest"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }
