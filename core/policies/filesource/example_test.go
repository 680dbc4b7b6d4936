package filesource_test

import (
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies/filesource"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "policies")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "policies.yaml")
	err = os.WriteFile(path, []byte("format: 1\npolicies:\n  mail:\n    text: 20/1s\n"), 0o600)
	if err != nil {
		log.Fatal(err)
	}

	file, err := filesource.New(path, filesource.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(store, core.MustParse("mail: 10/1s"), enforce.Options{Source: file})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Policy())
	fmt.Println(file.Status().Policies, file.Status().Err)
	// Output:
	// mail: 20/1s
	// 1 <nil>
}

func ExampleParse() {
	_, err := filesource.Parse([]byte("format: 1\npolicies:\n  login:\n    text: 5 per minute\n    tiers:\n      pro: 010\n"))
	fmt.Println(err)
	// Output:
	// 4:11: policies.login.text: "5 per minute": at offset 2, found "per": expected "/" and a period, as in "100/1m", or "concurrent"
	// 6:12: policies.login.tiers.pro: found the number 010: give a text such as "100/1m", in quotes
}
