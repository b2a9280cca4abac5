#!/usr/bin/env bash
# Makes the commit of a release and proves that it can be installed: release.sh v0.1.0
# The commit is the current one with the go.mod files of a release: modules that others import or install require each other in this
# version and replace nothing, which `go install` demands. It belongs to no branch, so main goes on with its replacements. The script
# makes it in a clone, lets Go fetch the modules by their tags from there, uses these in an empty module cache as a new user would,
# and prints the commands that tag the commit here. It needs git, Go, and a module proxy for the other modules.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
version=${1:-} path=github.com/fileproc/fileproc
# Each after those that it requires. The modules under scripts and internal work in a clone alone: they keep what they replace.
modules=(. cache/cacheprom cmd/fileproc fileprocbeam examples/spark examples/beam)

refuse() {
	echo "release.sh: $1" >&2
	exit 2
}
[ $# = 1 ] && [[ $version =~ ^v[01]\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$ ]] ||
	refuse "usage: release.sh VERSION, such as v0.1.0 or v0.2.0-rc.1"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes that are not committed"
[ -z "$(git tag --list "$version" "*/$version")" ] || refuse "$version is tagged already"
grep -qF "## [${version#v}]" CHANGELOG.md || refuse "CHANGELOG.md has no section [${version#v}]"
unlisted=$(git ls-files '*go.mod' ':!scripts' ':!internal' | sed 's,/*go.mod$,,; s,^$,.,' | grep -vxF "$(printf '%s\n' "${modules[@]}")") || true
[ -z "$unlisted" ] || refuse "not in the list of modules: $unlisted"

clone=$tmp/clone
git clone -q -c user.name="$(git config user.name)" -c user.email="$(git config user.email)" . "$clone"
GONOSUMDB=$path,$(go env GONOSUMDB) GOPROXY=file://$tmp/served/cache/download,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)
GOFLAGS="$GOFLAGS -mod=mod -modcacherw -trimpath" # -trimpath: a build of Beam serves the next release too
export GONOSUMDB GOPROXY GOFLAGS

path_of() { [ "$1" = . ] && echo $path || echo "$path/$1"; }
tag_of() { [ "$1" = . ] && echo "$version" || echo "$1/$version"; }
quietly() { "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; return 1; }; }
# serve tags the clone's commit for a module, and lets Go fetch the module by that tag to where GOPROXY finds it.
serve() {
	git -C "$clone" tag -f "$(tag_of "$1")" >/dev/null
	GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$clone.insteadOf GIT_CONFIG_VALUE_0=https://$path \
		GOPROXY=direct GOMODCACHE=$tmp/served go -C "$tmp" mod download "$(path_of "$1")@$version"
}

git -C "$clone" commit -q --allow-empty -m "Release $version" -m "The modules require each other in this version."
for m in "${modules[@]}"; do
	edits=()
	for required in $(awk '$1 == "require" { $1 = $2 } $1 ~ "^'$path'" { print $1 }' "$clone/$m/go.mod" | sort -u); do
		edits+=(-require "$required@$version" -dropreplace "$required")
	done
	if [ ${#edits[@]} != 0 ]; then
		go -C "$clone/$m" mod edit "${edits[@]}"
		quietly go -C "$clone/$m" mod tidy
		git -C "$clone" commit -q -a --amend --no-edit
	fi
	serve "$m" # the checksums of the next modules need it
done
rm -rf "$tmp/served"
for m in "${modules[@]}"; do
	serve "$m"
done

export GOMODCACHE=$tmp/empty GOBIN=$tmp/bin
for m in "${modules[@]}"; do
	echo "== go get $(path_of "$m")@$version"
	mkdir -p "$tmp/user/$m"
	(
		cd "$tmp/user/$m"
		quietly go mod init example.com/user
		quietly go get "$(path_of "$m")@$version"
		go build -o /dev/null "$(path_of "$m")/..."
	)
done
echo "== go install $path/cmd/fileproc@$version"
(cd "$tmp" && quietly go install $path/cmd/fileproc@"$version" && bin/fileproc --version && bin/fileproc ls "$clone/docs" >"$tmp/log" && grep -q guide.md "$tmp/log")
echo "== the first program of README.md"
awk '/^```go$/ { on = 1; next } /^```$/ && on { exit } on' README.md >"$tmp/user/main.go" # go get was the first module's
go -C "$tmp/user" run . "$clone" >"$tmp/lines"
grep -x "CHANGELOG.md: # Changelog" "$tmp/lines"

git fetch -q "$clone" HEAD # until a tag names the commit, git may remove it after two weeks
commit=$(git rev-parse FETCH_HEAD)
tags=()
echo "== all work; these commands make the release"
for m in "${modules[@]}"; do
	tags+=("$(tag_of "$m")")
	echo "git tag -a -m $version $(tag_of "$m") $commit"
done
echo "git push origin ${tags[*]}"
