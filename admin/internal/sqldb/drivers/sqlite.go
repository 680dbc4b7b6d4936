//go:build !race

package drivers

import (
	_ "modernc.org/sqlite" // "sqlite"
)
