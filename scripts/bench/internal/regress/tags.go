//go:build linux

package regress

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tags are Go build tags, sorted and separated by commas.
type tags string

func (t tags) String() string {
	if t == "" {
		return "no build tags"
	}
	return "-tags " + string(t)
}

func buildTagsFlag(f *flag.FlagSet) *string {
	return f.String("tags", "", "Go build `tags`, separated by commas, of every build that is measured (default: those of GOFLAGS)")
}

// workingTree returns the working tree as it is built with the value of --tags.
func (repo repository) workingTree(ctx context.Context, flag string) (source, error) {
	t, err := repo.buildTags(ctx, flag)
	if err == nil {
		err = t.matter(ctx, string(repo))
	}
	return source{dir: string(repo), tags: t}, err
}

// buildTags checks the value of --tags. Without it the go command builds with the tags in GOFLAGS, so those are returned.
func (repo repository) buildTags(ctx context.Context, flag string) (tags, error) {
	from := "--tags"
	if flag == "" {
		goflags, err := output(ctx, string(repo), "go", "env", "GOFLAGS")
		if err != nil {
			return "", err
		}
		for _, field := range strings.Fields(goflags) {
			if value, ok := strings.CutPrefix(strings.TrimLeft(field, "-"), "tags="); ok {
				from, flag = "-tags in GOFLAGS", value // the last one counts
			}
		}
		if flag == "" {
			return "", nil
		}
	}
	if !regexp.MustCompile(`^[\w.]+(,[\w.]+)*$`).MatchString(flag) {
		return "", fmt.Errorf("%s %q: want build tags of letters, digits, dots and underscores, separated by commas", from, flag)
	}
	list := strings.Split(flag, ",")
	slices.Sort(list)
	return tags(strings.Join(slices.Compact(list), ",")), nil
}

// matter fails if a tag changes nothing in the source: what is measured would not be what the user asked for.
func (t tags) matter(ctx context.Context, dir string) error {
	files := func(tag string) (string, error) {
		return output(ctx, dir, "go", "list", "-deps", "-tags", tag, "-f", "{{.ImportPath}} {{.GoFiles}} {{.SFiles}}", ".")
	}
	if t == "" {
		return nil
	}
	without, err := files("")
	if err != nil {
		return err
	}
	for _, tag := range strings.Split(string(t), ",") {
		with, err := files(tag)
		if err != nil {
			return err
		}
		if with == without {
			return fmt.Errorf("no file of the package depends on the build tag %q", tag)
		}
	}
	return nil
}
