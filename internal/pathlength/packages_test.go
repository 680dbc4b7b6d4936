package pathlength

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxFilesOfPackage is the number of files that a package may have: with more it is two ideas. Guard has a file for each
// over-limit handler.
const (
	maxFilesOfPackage = 20
	maxFilesOfGuard   = 26
)

// No package is so large that nobody finds a file by its name. Files of tests do not count, but a package of tests, such
// as storetest, is a package like others.
func TestPackageFiles(t *testing.T) {
	files := map[string]int{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			dir, err := filepath.Rel("../..", filepath.Dir(path))
			files[filepath.ToSlash(dir)]++
			return err
		}
		return nil
	}))
	assert.Greater(t, len(files), 50)
	for dir, n := range files {
		most := maxFilesOfPackage
		if dir == "core/guard" {
			most = maxFilesOfGuard
		}
		assert.LessOrEqual(t, n, most, "files in %s: merge two that are one idea, or make a package of what another idea needs", dir)
	}
}

// The faces of core and enforce, as go doc -short lists them, are read at a glance.
func TestFaces(t *testing.T) {
	for dir, most := range map[string]int{"core": 35, "core/enforce": 15} {
		cmd := exec.CommandContext(t.Context(), "go", "doc", "-short", "./"+dir)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		lines := strings.Count(string(out), "\n")
		assert.LessOrEqual(t, lines, most, "go doc -short ./%s:\n%s", dir, out)
		assert.Greater(t, lines, 5, "%s", out)
	}
}
