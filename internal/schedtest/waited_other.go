//go:build !linux

package schedtest

func waited() map[string]int64 { return nil }
