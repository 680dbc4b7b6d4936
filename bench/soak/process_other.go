//go:build !linux

package main

import (
	"errors"
	"os"
)

func stop(*os.Process) error   { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }
func files() int               { return 0 }
