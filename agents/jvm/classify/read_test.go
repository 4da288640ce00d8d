package classify

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify/classtest"
)

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A truncated class file is rejected wherever it ends, and so is a file of another kind.
func TestTruncatedClass(t *testing.T) {
	file := classtest.Class("com.shop.Cart")
	c, err := ParseClass(file)
	if err != nil || c.Name != "com.shop.Cart" || c.Super != "java.lang.Object" || c.Package() != "com.shop" {
		t.Fatalf("%+v, %v", c, err)
	}
	for n := range file {
		if c, err := ParseClass(file[:n]); err == nil || c != (Class{}) {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(file), c, err)
		}
	}
	file[10] = 99
	if _, err := ParseClass(file); err == nil || !strings.Contains(err.Error(), "unknown tag 99") {
		t.Errorf("unknown constant: %v", err)
	}
}

func FuzzParseClass(f *testing.F) {
	f.Add(classtest.Class("a.B"))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := ParseClass(file)
		if (err == nil) == (c == Class{}) {
			t.Errorf("%+v, %v", c, err)
		}
		_ = c.Package()
	})
}

func FuzzRead(f *testing.F) {
	f.Add(classtest.Zip(f, map[string][]byte{
		"a/B.class": classtest.Class("a.B"), "WEB-INF/lib/a.jar": nil,
		"META-INF/MANIFEST.MF": []byte("Main-Class: a.B\n x"),
	}))
	f.Fuzz(func(t *testing.T, file []byte) {
		deployments, err := Read([]string{write(t, "a.jar", file)}, "")
		if err != nil && deployments != nil {
			t.Error("deployments with an error")
		}
		for _, d := range deployments {
			Classify(d, Rules{})
		}
	})
}

// lying returns an archive with an entry of n zero bytes that claims to have one byte.
func lying(t *testing.T, name string, n int) []byte {
	t.Helper()
	var packed, out bytes.Buffer
	d, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(&out)
	size := uint64(packed.Len())
	w, err := z.CreateRaw(&zip.FileHeader{
		Name: name, Method: zip.Deflate, CompressedSize64: size, UncompressedSize64: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(packed.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Hostile and broken content is skipped and reported; the rest is read.
func TestHostileArchives(t *testing.T) {
	good := classtest.Class("com.shop.Cart")
	inner := classtest.Zip(t, map[string][]byte{"com/zaxxer/Pool.class": classtest.Class("com.zaxxer.Pool")})
	for _, c := range []struct {
		name, want string
		path       string // of the broken entry
		content    []byte
	}{
		{"truncated class", "the class file is truncated", "com/shop/Bad.class", good[:20]},
		{"no class", "not a class file", "com/shop/Bad.class", []byte("hello")},
		{"path traversal", "no JVM would load", "../../com/shop/Cart.class", good},
		{"other name", "no JVM would load", "java/lang/String.class", good},
		{"broken nested jar", "neither a jar", "WEB-INF/lib/a.jar", []byte("PK\x03\x04")},
		{"truncated nested jar", "neither a jar", "WEB-INF/lib/a.jar", inner[:len(inner)-30]},
	} {
		shop := "com/shop/Cart.class"
		if strings.HasPrefix(c.path, "WEB-INF/") {
			shop = "WEB-INF/classes/" + shop
		}
		archive := classtest.Zip(t, map[string][]byte{shop: good, c.path: c.content})
		deployments, err := Read([]string{write(t, "shop.war", archive)}, "")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		d := deployments[0]
		if len(d.Problems) != 1 || !strings.Contains(d.Problems[0], c.want) || len(d.Sources) != 1 ||
			len(d.Sources[0].Classes) != 1 {
			t.Errorf("%s: problems %q, sources %+v", c.name, d.Problems, d.Sources)
		}
	}
}

// Entries that unpack to more than they claim aren't unpacked beyond the limit.
func TestBombs(t *testing.T) {
	for name, archive := range map[string][]byte{
		"class": lying(t, "com/shop/Cart.class", maxClass+1),
		"jar": classtest.Zip(t,
			map[string][]byte{"WEB-INF/lib/": nil, "WEB-INF/lib/a.jar": lying(t, "a/B.class", maxClass+1)}),
		"manifest": lying(t, "META-INF/MANIFEST.MF", maxText+1),
		"in a name": classtest.Zip(t,
			map[string][]byte{strings.Repeat("a/", 10000) + "B.class": classtest.Class("a.B")}),
	} {
		deployments, err := Read([]string{write(t, "shop.jar", archive)}, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, d := range deployments {
			if len(d.Sources) > 0 {
				t.Errorf("%s: %+v", name, d.Sources)
			}
		}
	}
	r := input{bytes: 10, entries: 1, classPath: &Deployment{}}
	bomb := write(t, "a.jar",
		classtest.Zip(t, map[string][]byte{"com/shop/Cart.class": classtest.Class("com.shop.Cart")}))
	if err := r.path(bomb); err == nil || !strings.Contains(err.Error(), "GiB") {
		t.Errorf("too many bytes: %v", err)
	}
	r = input{bytes: 1 << 20, classPath: &Deployment{}}
	if err := r.path(bomb); err == nil || !strings.Contains(err.Error(), "files") {
		t.Errorf("too many entries: %v", err)
	}
}

// The first of several entries with the same name counts. Problems are bounded.
func TestDuplicates(t *testing.T) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for range maxProblems + 6 {
		w, err := z.Create("com/shop/Cart.class")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(classtest.Class("com.shop.Cart")); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	deployments, err := Read([]string{write(t, "shop.jar", out.Bytes())}, "")
	if err != nil {
		t.Fatal(err)
	}
	d := deployments[0]
	if len(d.Sources[0].Classes) != 1 || len(d.Problems) != maxProblems || d.Omitted() != 5 ||
		!strings.Contains(d.Problems[0], "occurs more than once") {
		t.Errorf("%d classes, %d problems and %d more: %s",
			len(d.Sources[0].Classes), len(d.Problems), d.Omitted(), d.Problems[0])
	}
}

// A path that can't be read is an error that names it once.
func TestUnreadable(t *testing.T) {
	text := write(t, "notes.txt", []byte("no archive"))
	missing := filepath.Join(t.TempDir(), "missing.jar")
	for path, want := range map[string]string{
		text: "neither a jar, a war or another zip archive nor a folder", missing: "no such file or directory",
	} {
		if _, err := Read([]string{path}, ""); err == nil || err.Error() != path+": "+want {
			t.Errorf("got %v, want %s: %s", err, path, want)
		}
	}
}

// Each layout yields its sources.
func TestLayouts(t *testing.T) {
	pool := classtest.Zip(t, map[string][]byte{"com/zaxxer/Pool.class": classtest.Class("com.zaxxer.Pool")})
	cart := classtest.Class("com.shop.Cart")
	war := classtest.Zip(t,
		map[string][]byte{"index.html": nil, "WEB-INF/classes/com/shop/Cart.class": cart, "WEB-INF/lib/pool.jar": pool})
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"app/com/shop/Cart.class": cart,
		"lib/pool.jar":            pool,
		"webapps/shop.war":        war,
		"shop.ear":                classtest.Zip(t, map[string][]byte{"shop.war": war, "lib/pool.jar": pool}),
		"dist.zip":                classtest.Zip(t, map[string][]byte{"shop/lib/pool.jar": pool}),
		"app.jar": classtest.Zip(t, map[string][]byte{
			"META-INF/versions/11/com/shop/Cart.class": cart, "com/shop/Cart.class": cart,
			"module-info.class": cart, "data/pool.jar": pool,
		}),
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for paths, want := range map[string][]string{
		"app lib": {"folder /app 1", "jar /lib/pool.jar 1"},
		"webapps": {"folder /webapps/shop.war!/WEB-INF/classes 1", "library /webapps/shop.war!/WEB-INF/lib/pool.jar 1"},
		"shop.ear": {
			"folder /shop.ear!/shop.war!/WEB-INF/classes 1", "library /shop.ear!/shop.war!/WEB-INF/lib/pool.jar 1",
			"jar /shop.ear!/lib/pool.jar 1",
		},
		"dist.zip": {"jar /dist.zip!/shop/lib/pool.jar 1"},
		"app.jar":  {"jar /app.jar 1"},
	} {
		var absolute, got []string
		for p := range strings.FieldsSeq(paths) {
			absolute = append(absolute, filepath.Join(root, p))
		}
		deployments, err := Read(absolute, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deployments {
			if len(d.Problems) > 0 {
				t.Errorf("%s: %q", paths, d.Problems)
			}
			for _, s := range d.Sources {
				got = append(got, fmt.Sprintf("%s %s %d",
					[]string{"folder", "jar", "library"}[s.Kind], strings.TrimPrefix(s.Path, root), len(s.Classes)))
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s:\n%s", paths, d)
		}
	}
}
