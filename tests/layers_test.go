package fileproc_test

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// layers are the files of package fileproc without tests, from top to bottom. A file
// uses its own layer and those below. The last one is vocabulary, for all files.
var layers = []string{
	"fileproc options",
	"run",
	"scan scan_given scan_sources visit ignore",
	"worker file replace access ledger",
	"pool diskorder cold given scale",
	"results failures",
	"symlink",
	"dircache node job ordered filter",
	"config report errors",
}

// layerPlatforms are a GOOS, a GOARCH and build tags each. Every file is in one of these builds.
var layerPlatforms = []string{
	"linux amd64",
	"linux mips",
	"linux amd64 fileproc_unix",
	"linux amd64 fileproc_generic",
	"darwin arm64",
	"windows amd64",
}

// sourceFiles returns the names of the package's files.
func sourceFiles(t *testing.T) []string {
	inModule(t)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Skip("the tests run without their source")
	}
	return files
}

// layerOf returns the number of each file's layer.
func layerOf(t *testing.T, files []string) map[string]int {
	layer := map[string]int{}
	for i, names := range layers {
		for name := range strings.FieldsSeq(names) {
			exists := false
			for _, file := range files {
				if ok, _ := filepath.Match(name+".go", file); !ok {
					continue
				}
				exists = true
				if other, ok := layer[file]; ok {
					t.Errorf("%s is in two layers: %q and %q", file, layers[other], names)
				}
				layer[file] = i
			}
			if !exists {
				t.Errorf("no file is %s.go, which is in the layer %q", name, names)
			}
		}
	}
	for _, file := range files {
		if _, ok := layer[file]; !ok {
			t.Errorf("%s is in no layer", file)
		}
	}
	return layer
}

// importsOfHost returns the packages that package fileproc imports, as the compiler has built them for the host.
func importsOfHost(t *testing.T, fset *token.FileSet) types.Importer {
	out, err := goCommand(".", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".")
	if err != nil {
		t.Skip("no go command, or not all of the source: ", err, out)
	}
	exports := map[string]string{}
	for line := range strings.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	return importer.ForCompiler(fset, runtime.Compiler, func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

// TestLayers: no file uses what a layer above its own declares, and no two files use each other, on any platform.
func TestLayers(t *testing.T) {
	files := slices.DeleteFunc(sourceFiles(t), func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	layer := layerOf(t, files)
	fset := token.NewFileSet()
	imports := importsOfHost(t, fset)
	parsed := map[string]*ast.File{}
	for _, name := range files {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed[name] = file
	}

	checked := map[string]bool{}
	arrows := map[string]map[string]bool{} // from a file to those that declare what it uses
	wrong := map[string]bool{}
	for _, platform := range layerPlatforms {
		fields := strings.Fields(platform)
		target := build.Default
		target.GOOS, target.GOARCH, target.BuildTags = fields[0], fields[1], fields[2:]
		var built []*ast.File
		for _, name := range files {
			if ok, err := target.MatchFile(".", name); err != nil {
				t.Fatal(err)
			} else if ok {
				checked[name] = true
				built = append(built, parsed[name])
			}
		}
		config := types.Config{Importer: imports, Error: func(err error) {
			// The imports of another build may declare more. What this package declares is found all the same.
			if platform == runtime.GOOS+" "+runtime.GOARCH {
				t.Error(platform, ": ", err)
			}
		}}
		uses := map[*ast.Ident]types.Object{}
		config.Check("github.com/fileproc/fileproc", fset, built, &types.Info{Uses: uses})
		for id, object := range uses {
			at, declared := fset.Position(id.Pos()), fset.Position(object.Pos())
			if _, ours := layer[declared.Filename]; ours && at.Filename != declared.Filename {
				if arrows[at.Filename] == nil {
					arrows[at.Filename] = map[string]bool{}
				}
				arrows[at.Filename][declared.Filename] = true
			}
			if above, ours := layer[declared.Filename]; ours && above < layer[at.Filename] {
				wrong[at.String()+": "+id.Name+" is declared in a layer above, in "+declared.String()] = true
			}
		}
	}
	checkKnots(t, files, arrows)
	for _, use := range slices.Sorted(maps.Keys(wrong)) {
		t.Error(use)
	}
	for _, name := range files {
		if !checked[name] {
			t.Errorf("%s is in no build of layerPlatforms", name)
		}
	}
}

// checkKnots checks that no two files use each other, also by way of others. It logs how many arrows there are.
func checkKnots(t *testing.T, files []string, arrows map[string]map[string]bool) {
	count := 0
	reached := map[string]map[string]bool{} // from each file
	for _, from := range files {
		count += len(arrows[from])
		reached[from] = map[string]bool{}
		for todo := []string{from}; len(todo) > 0; {
			next := arrows[todo[0]]
			todo = todo[1:]
			for to := range next {
				if !reached[from][to] {
					reached[from][to] = true
					todo = append(todo, to)
				}
			}
		}
	}
	t.Logf("%d files, %d arrows", len(files), count)
	tied := map[string]bool{}
	for _, a := range files {
		var knot []string
		for _, b := range files {
			if !tied[b] && reached[a][b] && reached[b][a] {
				knot = append(knot, b)
			}
		}
		for _, b := range knot {
			tied[b] = true
		}
		if len(knot) > 1 {
			t.Error("these files use each other: ", knot)
		}
	}
}

// TestMapOfFiles: CONTRIBUTING.md has a place for each file but the tests that are named for one, and for no other file.
func TestMapOfFiles(t *testing.T) {
	files := sourceFiles(t)
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Skip("the tests run without the documentation: ", err)
	}
	tests, _ := filepath.Glob("tests/*_test.go")
	for _, file := range tests {
		files = append(files, filepath.Base(file))
	}
	for _, m := range regexp.MustCompile("`([a-z0-9_*]+/[a-z0-9_*/]+\\.go)`").FindAllSubmatch(text, -1) {
		if found, _ := filepath.Glob(string(m[1])); found == nil {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", m[1])
		}
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9_*]+\\.go)`").FindAllSubmatch(text, -1) {
		exists := false
		for _, file := range files {
			sameKind := strings.HasSuffix(file, "_test.go") == strings.HasSuffix(string(m[1]), "_test.go")
			if ok, _ := filepath.Match(string(m[1]), file); ok && sameKind {
				named[file] = true
				exists = true
			}
		}
		if !exists {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", m[1])
		}
	}
	for _, file := range files {
		subject, _, _ := strings.Cut(file, "_")
		if strings.HasSuffix(file, "_test.go") && slices.Contains(files, subject+".go") {
			continue
		}
		if !named[file] {
			t.Errorf("CONTRIBUTING.md has no place for %s", file)
		}
	}
}
