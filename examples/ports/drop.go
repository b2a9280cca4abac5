package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
)

// drop removes declarations from a Go file, with their comments, and then the imports that nothing uses any more. It
// returns how many lines that are, and takes what it has found from names.
func drop(src []byte, names map[string]bool) (left []byte, lines int, err error) {
	left, lines, err = cut(src, func(file *ast.File, cut func(ast.Node, *ast.CommentGroup)) {
		for _, d := range file.Decls {
			if name, doc := declared(d); names[name] {
				delete(names, name)
				cut(d, doc)
			}
		}
	})
	if err != nil || lines == 0 {
		return src, 0, err
	}
	left, imports, err := cut(left, func(file *ast.File, cut func(ast.Node, *ast.CommentGroup)) {
		used := map[string]bool{"_": true, ".": true}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				used[fmt.Sprint(s.X)] = true
			}
			return true
		})
		for _, spec := range file.Imports {
			if !used[importName(spec)] {
				cut(spec, spec.Doc)
			}
		}
	})
	return left, lines + imports, err
}

// cut removes the nodes that choose cuts, in the order of the file, and the comments above them: whole lines.
func cut(src []byte, choose func(file *ast.File, cut func(ast.Node, *ast.CommentGroup))) (left []byte, lines int, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.ParseComments)
	if err != nil {
		return nil, 0, err
	}
	end := 0
	choose(file, func(n ast.Node, doc *ast.CommentGroup) {
		from, to := n.Pos(), n.End()
		if doc != nil {
			from = doc.Pos()
		}
		begin := fset.Position(from).Offset
		begin = bytes.LastIndexByte(src[:begin], '\n') + 1
		left = append(left, src[end:begin]...)
		end = fset.Position(to).Offset
		if i := bytes.IndexByte(src[end:], '\n'); i >= 0 {
			end += i + 1
		}
		lines += bytes.Count(src[begin:end], []byte("\n"))
	})
	return append(left, src[end:]...), lines, nil
}

// declared returns the name of what d declares, if that is one thing, and the comment above: "f", or "T.m" for a method.
func declared(d ast.Decl) (string, *ast.CommentGroup) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name, d.Doc
		}
		of := d.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		return fmt.Sprintf("%v.%v", of, d.Name), d.Doc
	case *ast.GenDecl:
		if len(d.Specs) != 1 {
			break
		}
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name, d.Doc
		case *ast.ValueSpec:
			if len(s.Names) == 1 {
				return s.Names[0].Name, d.Doc
			}
		}
	}
	return "", nil
}

var majorVersion = regexp.MustCompile(`/v\d+$`)

func importName(s *ast.ImportSpec) string {
	if s.Name != nil {
		return s.Name.Name
	}
	p, _ := strconv.Unquote(s.Path.Value)
	return path.Base(majorVersion.ReplaceAllString(p, ""))
}
