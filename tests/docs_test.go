package fileproc_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// inModule makes the directory of the module the current one for the rest of the test.
func inModule(t *testing.T) { t.Chdir("..") }

// exampleFiles parses the files that have examples.
func exampleFiles(t *testing.T) (*token.FileSet, []*ast.File) {
	inModule(t)
	names, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	if len(names) == 0 {
		t.Skip("the tests run without their source")
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	return fset, files
}

// goCommand runs the go command in dir. It downloads nothing: the modules that these tests were built with are enough.
func goCommand(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	// The tests may be emulated; the go command is not.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOOS=", "GOARCH=", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// outside returns an empty directory outside of this module, and a function that runs the go command in it.
func outside(t *testing.T) (dir string, run func(args ...string) string) {
	if testing.Short() {
		t.Skip("builds what no build tag changes: once, without -short, is enough")
	}
	if out, err := goCommand(".", "list", "-deps", "-test", ".", "github.com/cespare/xxhash/v2"); err != nil {
		t.Skip("no go command, or none of the modules that it needs: ", err, out)
	}
	dir = t.TempDir()
	return dir, func(args ...string) string {
		out, err := goCommand(dir, args...)
		require.NoError(t, err, "go %q: %s", args, out)
		return out
	}
}

// TestExamplesRunAnywhere: each example is a program with an Output comment, and needs no file that it does not make. Those of
// package cache run in the same module.
func TestExamplesRunAnywhere(t *testing.T) {
	fset, files := exampleFiles(t)
	for _, e := range doc.Examples(files...) {
		require.NotNil(t, e.Play, "%s uses something that is not in its file", e.Name)
		require.NotEmpty(t, e.Output, e.Name)
	}

	clone, err := os.Getwd()
	require.NoError(t, err)
	dir, run := outside(t)
	for _, f := range files {
		name := fset.File(f.Pos()).Name()
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o666))
	}
	text, err := os.ReadFile("cache/example_test.go")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cache", "example_test.go"), text, 0o666))
	run("mod", "init", "examples")
	run("mod", "edit", "-replace", "github.com/fileproc/fileproc="+clone)
	run("mod", "tidy")
	run("test", "-vet=off", "./...")
}

// TestEachOptionHasAnExample, and each method of File.
func TestEachOptionHasAnExample(t *testing.T) {
	_, files := exampleFiles(t)
	options, methods := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if typ, ok := n.Type.(*ast.SelectorExpr); n.Type != nil && (!ok || typ.Sel.Name != "Options") {
					break
				}
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						options[fmt.Sprint(pair.Key)] = true
					}
				}
			case *ast.SelectorExpr:
				methods[n.Sel.Name] = true
			}
			return true
		})
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[fileproc.Options]()) {
		if field.IsExported() {
			require.True(t, options[field.Name], "no example uses Options.%s", field.Name)
		}
	}
	for file := range reflect.TypeFor[*fileproc.File]().Methods() {
		require.True(t, methods[file.Name], "no example uses File.%s", file.Name)
	}
}

// TestOptionsInOrder: the table in README.md names all options, in the order of the fields.
func TestOptionsInOrder(t *testing.T) {
	inModule(t)
	var fields []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[fileproc.Options]()) {
		if field.IsExported() {
			fields = append(fields, field.Name)
		}
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Skip("the tests run without their source: ", err)
	}
	_, table, found := strings.Cut(string(text), "\n|to|set|")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(table, -1) {
		if m[1] != "NoRead" {
			named = append(named, m[1])
		}
	}
	require.Equal(t, fields, named)
}

// TestOptionsOfPipelines: a test of fileprocbeam, whose build takes minutes, has each option in one of its tables, of those that a
// pipeline refuses and of those that it keeps.
func TestOptionsOfPipelines(t *testing.T) {
	inModule(t)
	file, err := parser.ParseFile(token.NewFileSet(), "fileprocbeam/options_test.go", nil, parser.SkipObjectResolution)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tests run without their source")
	}
	require.NoError(t, err)
	tables := map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		spec := gen.Specs[0].(*ast.ValueSpec)
		if table := spec.Names[0].Name; table == "refusedOptions" || table == "keptOptions" {
			for _, row := range spec.Values[0].(*ast.CompositeLit).Elts {
				name := strings.Trim(row.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value, `"`)
				require.Empty(t, tables[name], name)
				tables[name] = table
			}
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[fileproc.Options]()) {
		if f.IsExported() {
			require.NotEmpty(t, tables[f.Name], "Options.%s is in neither table of fileprocbeam/options_test.go", f.Name)
			delete(tables, f.Name)
		}
	}
	require.Empty(t, tables, "no options")
}

// TestDocsNameTestsThatAreThere: each promise in docs/dev/guarantees.md has one too.
func TestDocsNameTestsThatAreThere(t *testing.T) {
	inModule(t)
	guarantees, err := os.ReadFile("docs/dev/guarantees.md")
	if err != nil {
		t.Skip("the tests run without the documentation: ", err)
	}
	promises := regexp.MustCompile(`(?m)^\d+\. \*\*`).FindAll(guarantees, -1)
	require.Len(t, promises, 11)

	tests := map[string]bool{}
	named := map[string]string{} // by test: the file that names it
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	name := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		if strings.HasSuffix(path, ".md") {
			for _, m := range name.FindAll(text, -1) {
				named[string(m)] = path
			}
		}
		return err
	}))
	delete(named, "TestInvariant") // the prefix of all tests of promises
	for test, path := range named {
		require.True(t, tests[test], "%s names %s, which is not there", path, test)
	}
	for i := range promises {
		named := fmt.Sprintf(`^TestInvariant%d\D`, i+1)
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(tests)), regexp.MustCompile(named).MatchString), "no %s", named)
	}
}

// TestDocsLinks: each link in the documentation leads to a file that is there and, after a #, to one of its headings.
func TestDocsLinks(t *testing.T) {
	inModule(t)
	block, code := regexp.MustCompile("(?ms)^```.*?^```$|^    [^\n]*"), regexp.MustCompile("`[^`\n]+`")
	heading, link := regexp.MustCompile(`(?m)^#+ (.*)`), regexp.MustCompile(`\]\(([^)\s]*)\)`)
	notInAnchor := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	links, anchors := map[string][]string{}, map[string]bool{} // links by page, anchors as "page#anchor"
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() && (path != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		text, path = block.ReplaceAll(text, nil), filepath.ToSlash(path)
		for _, m := range link.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			links[path] = append(links[path], string(m[1]))
		}
		for _, m := range heading.FindAllSubmatch(text, -1) {
			anchors[path+"#"+strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(string(m[1])), ""), " ", "-")] = true
		}
		return err
	}))
	if len(links) == 0 {
		t.Skip("the tests run without the documentation")
	}
	require.Contains(t, links["README.md"], "docs/dev/performance.md#cold-trees", "the test sees links")
	for page, targets := range links {
		for _, target := range targets {
			if u, err := url.Parse(target); err != nil || u.Scheme != "" {
				require.NoError(t, err, page)
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			if file = path.Join(path.Dir(page), file); strings.HasPrefix(target, "#") {
				file = page
			}
			_, err := os.Stat(file)
			require.NoError(t, err, page)
			if anchor != "" {
				require.True(t, anchors[file+"#"+anchor], "%s links to %s", page, target)
			}
		}
	}
}

// TestReadmeStart follows the first steps in README.md.
func TestReadmeStart(t *testing.T) {
	inModule(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Skip("the tests run without the documentation: ", err)
	}
	_, start, _ := bytes.Cut(readme, []byte("\n## Start\n"))
	start, _, found := bytes.Cut(start, []byte("\n    go run . "))
	require.True(t, found)
	_, program, _ := bytes.Cut(start, []byte("\n```go\n"))
	program, _, found = bytes.Cut(program, []byte("```\n"))
	require.True(t, found)

	clone, err := os.Getwd()
	require.NoError(t, err)
	dir, run := outside(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program, 0o666))
	commands := 0
	for line := range strings.Lines(string(start)) {
		if args, ok := strings.CutPrefix(line, "    go "); ok {
			fields := strings.Fields(args)
			for i := range fields {
				fields[i] = strings.ReplaceAll(fields[i], "../fileproc", clone)
			}
			run(fields...)
			commands++
		}
	}
	require.Equal(t, 3, commands)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note.md"), []byte("# First\nsecond\n"), 0o666))
	require.Equal(t, "note.md: # First\n", run("run", ".", "."))
}

// withImports returns the file of a package that has source and imports what source uses.
func withImports(name, source string) string {
	file := "package " + name + "\n"
	for path := range strings.FieldsSeq(`archive/tar archive/zip bytes context crypto/sha1 crypto/sha256 errors fmt io io/fs log os os/exec path/filepath regexp
		runtime slices strings sync time github.com/fileproc/fileproc github.com/fileproc/fileproc/cache
		github.com/fileproc/fileproc/incremental github.com/fileproc/fileproc/watch`) {
		if regexp.MustCompile(`\b` + filepath.Base(path) + `\.`).MatchString(source) {
			file += fmt.Sprintf("import %q\n", path)
		}
	}
	return file + source
}

// TestRecipes: each program in the section Recipes of docs/guide.md prints what its comment says.
func TestRecipes(t *testing.T) {
	inModule(t)
	guide, err := os.ReadFile("docs/guide.md")
	if err != nil {
		t.Skip("the tests run without the documentation: ", err)
	}
	_, recipes, _ := strings.Cut(string(guide), "\n## Recipes\n")
	recipes, _, found := strings.Cut(recipes, "\n## ")
	require.True(t, found)
	clone, err := os.Getwd()
	require.NoError(t, err)
	dir, run := outside(t)
	if runtime.GOOS == "windows" {
		t.Skip("the output has a message of Unix")
	}

	type recipe struct {
		block, output string
		lines         func(string) []string // of an output
	}
	asPrinted := func(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }
	var command recipe
	var all []recipe
	functions, calls := "", ""
	for _, text := range strings.Split(recipes, "\n```go\n")[1:] {
		block, _, _ := strings.Cut(text, "```\n")
		_, output, found := strings.Cut(block, "\n// Output: ")
		r := recipe{block, output, asPrinted}
		if !found {
			_, r.output, found = strings.Cut(block, "\n// Unordered output: ")
			r.lines = func(s string) []string { return slices.Sorted(slices.Values(asPrinted(s))) }
		}
		require.True(t, found, block)
		r.output = strings.ReplaceAll(r.output, "\n// ", "\n")
		if strings.HasPrefix(block, "package ") {
			command = r
			continue
		}
		below := ""
		if strings.Contains(block, "AllTypes") {
			below = "/docs" // without .git
		}
		functions += fmt.Sprintf("func recipe%d(root string) error {\n%sreturn nil\n}\n", len(all), block)
		calls += fmt.Sprintf("run(recipe%d, root+%q)\n", len(all), below)
		all = append(all, r)
	}
	require.Len(t, all, 8)
	program := withImports("main", `
var (
	root   = os.Args[1]
	builds = 0
	ctx    context.Context
	cancel context.CancelFunc
)

// build is called again when the file that it makes is seen.
func build() {
	fmt.Println("built")
	if builds++; builds == 2 {
		cancel()
	} else if err := os.WriteFile(root+"/page.md", []byte("# Page"), 0o666); err != nil {
		panic(err)
	}
}

func run(recipe func(string) error, root string) {
	ctx, cancel = context.WithCancel(context.Background())
	fmt.Println("\x00", recipe(root))
}

func main() {
	log.SetOutput(io.Discard)
`+calls+`}
`+functions)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o666))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "todo"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "todo", "main.go"), []byte(command.block), 0o666))

	tree := t.TempDir()
	const secret = "KEY=AKIAIOSFODNN7EXAMPLE\n"
	testtree.Make(t, tree, "deploy.env="+secret, "local.env="+secret, "new.go=package p // TODO\n", "old.go=package p\n// Deprecated: use new\n",
		"docs/a.md=# A\n", "docs/latest -> a.md")
	var zipped, tarred bytes.Buffer
	z, tw := zip.NewWriter(&zipped), tar.NewWriter(&tarred)
	file, err := z.Create("red.svg")
	require.NoError(t, err)
	_, err = file.Write([]byte("<svg/>"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, tw.WriteHeader(&tar.Header{Name: "blue.svg", Size: 6, Mode: 0o644}))
	_, err = tw.Write([]byte("<svg/>"))
	require.NoError(t, err)
	require.NoError(t, tw.Close())
	testtree.Make(t, tree, "icons.zip="+zipped.String(), "icons.tar="+tarred.String())
	for _, args := range [][]string{{"init", "-q"}, {"add", "deploy.env", "old.go", "icons.zip"}} {
		if out, err := exec.Command("git", append([]string{"-C", tree}, args...)...).CombinedOutput(); err != nil {
			t.Skipf("git %q: %v: %s", args, err, out)
		}
	}

	run("mod", "init", "recipes")
	run("mod", "edit", "-replace", "github.com/fileproc/fileproc="+clone)
	run("mod", "tidy")
	run("build", "-o", "todo/", "./todo")
	_, args, _ := strings.Cut(command.block, "// $ todo ")
	args, _, _ = strings.Cut(args, "\n")
	todo := exec.Command(filepath.Join(dir, "todo", "todo"), strings.Fields(args)...)
	todo.Dir = tree
	out, err := todo.CombinedOutput()
	require.Equal(t, asPrinted(command.output), append(asPrinted(string(out)), fmt.Sprint(err)))
	printed := strings.Split(run("run", ".", tree), "\x00 <nil>\n")
	require.Len(t, printed, len(all)+1, "%q", printed)
	for i, r := range all {
		shown := printed[i][strings.LastIndex(printed[i], "\r")+1:] // what a terminal shows of a bar
		require.Equal(t, r.lines(r.output), r.lines(shown))
	}
}

// TestDocsCompile: each block of Go in README.md and in the pages for users compiles, apart from those that use modules of others
// and those that leave something out.
func TestDocsCompile(t *testing.T) {
	inModule(t)
	clone, err := os.Getwd()
	require.NoError(t, err)
	if _, err := os.Stat("docs/guide.md"); err != nil {
		t.Skip("the tests run without the documentation: ", err)
	}
	dir, run := outside(t)
	// What the text around a block, or another block, has declared.
	const declared = `
var (
	ctx         context.Context
	dir, root   string
	task, tasks int
	paths       []string
	opts        fileproc.Options
	files       *cache.FS
	inc         incremental.Options[Ticket]
	index       interface {
		Remove(string)
		Put(string, []byte) error
	}
	parse       func(*fileproc.File) (Ticket, error)
	build       func()
)

type Ticket struct{}
`
	elsewhere := regexp.MustCompile(`\b(blob|prometheus)\.|// as before`)
	blocks := 0
	for _, page := range []string{"README", "docs/guide", "docs/cache", "docs/incremental", "docs/ignore-files", "docs/many-machines", "docs/faq", "docs/migration"} {
		text, err := os.ReadFile(page + ".md")
		require.NoError(t, err)
		types := ""
		for i, block := range strings.Split(string(text), "\n```go\n")[1:] {
			block, _, found := strings.Cut(block, "```\n")
			require.True(t, found, page)
			if elsewhere.MatchString(block) {
				continue
			}
			if !strings.HasPrefix(block, "package ") {
				source := declared + types
				switch {
				case strings.HasPrefix(block, "type "):
					types += block
					source += block
				case strings.HasPrefix(block, "func "):
					source += block
				default:
					source += "func block() error {\n" + block + "return nil\n}\n"
				}
				block = withImports("page", source)
			}
			blocks++
			name := filepath.Join(dir, fmt.Sprint(strings.ReplaceAll(page, "/", "_"), "_", i+1), "block.go")
			require.NoError(t, os.Mkdir(filepath.Dir(name), 0o777))
			require.NoError(t, os.WriteFile(name, []byte(block), 0o666))
		}
	}
	require.Greater(t, blocks, 10)
	run("mod", "init", "pages")
	run("mod", "edit", "-replace", "github.com/fileproc/fileproc="+clone)
	run("mod", "tidy")
	out, _ := goCommand(dir, "build", "-gcflags=-e", "./...")
	unused := regexp.MustCompile(`(?m)^(# .*|.*(declared and|imported and) not used.*)\n`)
	require.Empty(t, unused.ReplaceAllString(out, ""))
}
