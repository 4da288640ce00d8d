package jvm_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
	"github.com/sibyl-trace/sibyl/agents/jvm/classify/classtest"
)

// placed is an application on disk, with the names that a JVM uses for the places of its classes.
type placed struct {
	name      string
	files     map[string][]byte
	paths     []string          // to classify, relative
	main      string            // class, if no manifest names it
	command   string            // of the JVM, with $ for the folder
	classPath string            // of the JVM, with $ for the folder
	urls      map[string]string // by path of a source, both with $ for the folder
}

func manifest(lines ...string) []byte {
	return []byte("Manifest-Version: 1.0\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n")
}

func coordinates(group, artifact, version string) []byte {
	return fmt.Appendf(nil, "groupId=%s\nartifactId=%s\nversion=%s\n", group, artifact, version)
}

func jarWith(t *testing.T, classes string, files map[string][]byte) []byte {
	t.Helper()
	all := make(map[string][]byte)
	for name := range strings.FieldsSeq(classes) {
		all[strings.ReplaceAll(name, ".", "/")+".class"] = classtest.Class(name)
	}
	maps.Copy(all, files)
	return classtest.Zip(t, all)
}

// applications returns one application of each layout.
func applications(t *testing.T) []placed {
	pool := jarWith(t, "com.zaxxer.Pool com.zaxxer.util.List",
		map[string][]byte{"META-INF/maven/com.zaxxer/pool/pom.properties": coordinates("com.zaxxer", "pool", "5.1")})
	core := jarWith(t, "com.shop.core.Price org.shop.Old", map[string][]byte{
		"META-INF/MANIFEST.MF":                             manifest("Implementation-Vendor: The", "  Shop"),
		"META-INF/maven/com.shop/shop-core/pom.properties": coordinates("com.shop", "shop-core", "1.4"),
	})
	outer := map[string][]byte{
		"META-INF/MANIFEST.MF": manifest("Main-Class: org.springframework.boot.loader.JarLauncher",
			"Start-Class: com.shop.Main", "Implementation-Version: 1.4"),
		"META-INF/maven/com.shop/shop/pom.properties": coordinates("com.shop", "shop", "1.4"),
		"BOOT-INF/classes/com/shop/Main.class":        classtest.Class("com.shop.Main"),
		"BOOT-INF/classes/":                           nil,
		"BOOT-INF/classes/com/shop/a/b/C.class":       classtest.Class("com.shop.a.b.C"),
		"BOOT-INF/lib/pool-5.1.jar":                   pool,
		"BOOT-INF/lib/shop-core-1.4.jar":              core,
	}
	boot := jarWith(t, "org.springframework.boot.loader.JarLauncher", outer)
	main := jarWith(t, "com.shop.Main com.shop.a.Cart net.util.Text", map[string][]byte{
		"META-INF/MANIFEST.MF": manifest("Main-Class: com.shop.Main",
			"Class-Path: lib/pool-5.1.jar lib/shop-core-1.4.jar", "Implementation-Vendor: The Shop"),
		"META-INF/maven/com.shop/shop/pom.properties": coordinates("com.shop", "shop", "1.4"),
	})
	mixed := jarWith(t, "com.shop.Main a.A b.B c.C org.apache.commons.io.D javax.inject.E net.sf.trove.F",
		map[string][]byte{"META-INF/MANIFEST.MF": manifest("Main-Class: com.shop.Main")})
	return []placed{
		{
			"java -jar",
			map[string][]byte{
				"shop.jar": main, "lib/pool-5.1.jar": pool, "lib/shop-core-1.4.jar": core, "other.jar": pool,
			},
			[]string{"shop.jar", "lib", "other.jar"},
			"", "$/shop.jar --port 1", "$/shop.jar",
			map[string]string{
				"$/shop.jar": "file:$/shop.jar", "$/lib/pool-5.1.jar": "file:$/lib/pool-5.1.jar",
				"$/lib/shop-core-1.4.jar": "file:$/lib/shop-core-1.4.jar", "$/other.jar": "file:$/other.jar",
			},
		},
		{
			"class path",
			map[string][]byte{
				"classes/com/shop/Main.class": classtest.Class("com.shop.Main"), "pool-5.1.jar": pool,
				"shop-core-1.4.jar": core,
			},
			[]string{"classes", "pool-5.1.jar", "shop-core-1.4.jar"},
			"com.shop.Main", "com.shop.Main", "$/classes:$/pool-5.1.jar:$/shop-core-1.4.jar",
			map[string]string{
				"$/classes": "file:$/classes/", "$/pool-5.1.jar": "file:$/pool-5.1.jar",
				"$/shop-core-1.4.jar": "file:$/shop-core-1.4.jar",
			},
		},
		{
			"one jar",
			map[string][]byte{"shop.jar": mixed},
			[]string{"shop.jar"},
			"", "$/shop.jar", "$/shop.jar",
			map[string]string{"$/shop.jar": "file:$/shop.jar"},
		},
		{
			"Spring Boot",
			map[string][]byte{"shop.jar": boot},
			[]string{"shop.jar"},
			"", "$/shop.jar", "$/shop.jar",
			map[string]string{
				"$/shop.jar":                            "file:$/shop.jar",
				"$/shop.jar!/BOOT-INF/classes":          "jar:nested:$/shop.jar/!BOOT-INF/classes/!/",
				"$/shop.jar!/BOOT-INF/lib/pool-5.1.jar": "jar:nested:$/shop.jar/!BOOT-INF/lib/pool-5.1.jar!/",
				// Such URLs were in use before Spring Boot 3.2.
				"$/shop.jar!/BOOT-INF/lib/shop-core-1.4.jar": "jar:file:$/shop.jar!/BOOT-INF/lib/shop-core-1.4.jar!/",
			},
		},
		{
			"war",
			map[string][]byte{
				"shop/WEB-INF/classes/com/shop/Main.class":         classtest.Class("com.shop.Main"),
				"shop/WEB-INF/lib/pool-5.1.jar":                    pool,
				"shop/WEB-INF/lib/shop-core-1.4.jar":               core,
				"shop/META-INF/maven/com.shop/shop/pom.properties": coordinates("com.shop", "shop", "1.4"),
			},
			[]string{"shop"},
			"", "org.apache.catalina.startup.Bootstrap start", "$/tomcat.jar",
			map[string]string{
				"$/shop/WEB-INF/classes":               "file:$/shop/WEB-INF/classes/",
				"$/shop/WEB-INF/lib/pool-5.1.jar":      "file:$/shop/WEB-INF/lib/pool-5.1.jar",
				"$/shop/WEB-INF/lib/shop-core-1.4.jar": "file:$/shop/WEB-INF/lib/shop-core-1.4.jar",
			},
		},
	}
}

// The classifiers in Go and in Java see the same features and decide alike.
func TestClassifiersAgree(t *testing.T) {
	programs, dir := java(t, "testdata/classify/Classify.java")
	for _, a := range applications(t) {
		t.Run(a.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			in := func(text string) string { return strings.ReplaceAll(text, "$", root) }
			var paths []string
			for name, data := range a.files {
				writeFile(t, filepath.Join(root, name), data)
			}
			for _, p := range a.paths {
				paths = append(paths, filepath.Join(root, p))
			}
			urls := make(map[string]string)
			for path, url := range a.urls {
				urls[in(path)] = in(url)
			}
			questions, want := decisions(t, paths, a.main, urls)
			for _, program := range programs {
				c := exec.CommandContext(t.Context(), program, "-cp", filepath.Join(dir, "agent")+":"+dir,
					"Classify", in(a.command), in(a.classPath))
				c.Stdin = strings.NewReader(questions)
				c.Stderr = os.Stderr
				got, err := c.Output()
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, string(got)); d != "" {
					t.Errorf("%s: Go and Java differ:\n%s", program, d)
				}
			}
		})
	}
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
}

// decisions returns the packages of an application as the Java program reads them, and the answers that it should
// write.
func decisions(t *testing.T, paths []string, main string, urls map[string]string) (questions, answers string) {
	t.Helper()
	deployments, err := classify.Read(paths, main)
	if err != nil || len(deployments) != 1 {
		t.Fatalf("%d deployments, %v", len(deployments), err)
	}
	d := deployments[0]
	features := classify.Features(d)
	var q, a bytes.Buffer
	for _, p := range classify.Classify(d, classify.Rules{}).Packages {
		url := urls[p.Source.Path]
		if url == "" {
			t.Fatalf("no URL for %s", p.Source.Path)
		}
		var all []string
		for _, f := range features(p.Source, p.Name) {
			all = append(all, f.Name+"="+f.Value)
		}
		fmt.Fprintf(&q, "%s\t%s\n", url, p.Name)
		fmt.Fprintf(&a, "%s\t%s\t%d\t%t\t%s\n",
			url, p.Name, int(math.Floor(1000*p.LogOdds+0.5)), p.Own, strings.Join(all, ";"))
	}
	return q.String(), a.String()
}
