package io.github.sibyltrace.android.weaver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RulesTest {
  private static Rules rules(String text) {
    Rules r = new Rules(new Types(Woven::classFile));
    r.add("r.txt", text);
    return r;
  }

  /** Every kind of work that is to be traced has a rule. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "android.os.AsyncTask execute ([Ljava/lang/Object;)V",
        "android.os.AsyncTask executeOnExecutor (Ljava/util/concurrent/Executor;[Ljava/lang/Object;)V",
        "java.net.URL openConnection ()V",
        "java.net.URL openConnection (Ljava/net/Proxy;)V",
        "java.net.URL openStream ()V",
        "org.apache.http.client.HttpClient execute (Lorg/apache/http/client/methods/HttpUriRequest;)V",
        "com.squareup.okhttp.OkHttpClient newCall (Lcom/squareup/okhttp/Request;)V",
        "okhttp3.OkHttpClient newCall (Lokhttp3/Request;)V",
        "okhttp3.OkHttpClient$Builder build ()V",
        "retrofit2.Retrofit$Builder build ()V",
        "android.database.sqlite.SQLiteDatabase rawQuery (Ljava/lang/String;[Ljava/lang/String;)V",
        "android.database.sqlite.SQLiteDatabase query (ZLjava/lang/String;)V",
        "android.database.sqlite.SQLiteDatabase execSQL (Ljava/lang/String;)V",
        "android.database.sqlite.SQLiteDatabase insertOrThrow (Ljava/lang/String;)V",
        "android.database.sqlite.SQLiteDatabase replace (Ljava/lang/String;)V",
        "android.database.sqlite.SQLiteDatabase update (Ljava/lang/String;)V",
        "android.database.sqlite.SQLiteDatabase delete (Ljava/lang/String;)V",
        "android.database.sqlite.SQLiteStatement executeInsert ()V",
        "com.google.gson.Gson toJson (Ljava/lang/Object;)V",
        "com.google.gson.Gson fromJson (Ljava/lang/String;Ljava/lang/Class;)V",
        "org.json.JSONObject <init> (Ljava/lang/String;)V",
        "org.json.JSONObject toString ()V",
        "org.json.JSONArray <init> (Ljava/lang/String;)V",
        "org.json.JSONArray toString (I)V",
        "android.graphics.BitmapFactory decodeStream (Ljava/io/InputStream;)V",
        "android.graphics.BitmapFactory decodeByteArray ([BII)V",
        "android.graphics.BitmapFactory decodeFile (Ljava/lang/String;)V",
        "android.graphics.BitmapFactory decodeResource (Landroid/content/res/Resources;I)V",
        "android.webkit.WebView loadUrl (Ljava/lang/String;)V",
        "android.webkit.WebView setWebViewClient (Landroid/webkit/WebViewClient;)V",
        "java.util.concurrent.ThreadPoolExecutor execute (Ljava/lang/Runnable;)V",
        "java.util.concurrent.ForkJoinPool submit (Ljava/util/concurrent/Callable;)V",
        "kotlinx.coroutines.BuildersKt launch ()V",
        "kotlinx.coroutines.BuildersKt async$default ()V",
      })
  void coversCalls(String call) throws Exception {
    String[] c = call.split(" ");
    Rules r = rules("");
    r.addBuiltIn();
    assertNotNull(r.ofCall(c[0], c[1], c[2]));
  }

  @ParameterizedTest
  @CsvSource({"android.app.Activity,onCreate,screen", "android.app.Activity,onResume,screen", "android.os.AsyncTask,doInBackground,task"})
  void coversBodies(String owner, String method, String kind) throws Exception {
    Rules r = rules("");
    r.addBuiltIn();
    assertEquals(kind, r.ofBody(owner, method, "()V").tracepointKind());
  }

  @Test
  void theFirstMatchWins() {
    Rules r = rules("wrap a.B#m() X.first # a reason\n# wrap a.B#m Y.no\nwrap a.*#m X.second");
    assertEquals("io/github/sibyltrace/android/X", r.ofCall("a.B", "m", "()V").targetClass());
    assertEquals("first", r.ofCall("a.B", "m", "()V").targetMethod("m"));
    assertEquals("second", r.ofCall("a.B", "m", "(I)V").targetMethod("m"));
    assertNull(r.ofCall("a.b.C", "m", "()V"));
    assertNull(r.ofBody("a.B", "m", "()V"));
  }

  @Test
  void patternsOfNames() {
    Rules r = rules("never **.R$*\nnever com.acme.crypto.**\nmethod com.{acme,shop}.**#{a,b}x\nwrap a.B#m(int, java.lang.String[]) c.D.*");
    assertTrue(r.never("com.acme.R$id", "m", "()V"));
    assertTrue(r.never("com.acme.crypto.a.B", "m", "()V"));
    assertNotNull(r.ofBody("com.shop.Cart", "bx", "()V"));
    assertNull(r.ofBody("com.other.Cart", "bx", "()V"));
    assertNull(r.ofBody("com.shop.Cart", "cx", "()V"));
    assertEquals("m", r.ofCall("a.B", "m", "(I[Ljava/lang/String;)V").targetMethod("m"));
    assertNull(r.ofCall("a.B", "m", "(I)V"));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "wrap a.B#m              | r.txt:1: add the target, as in Http.openConnection",
        "wrap a.B#m target       | r.txt:1: the target target must have a class and a method, as in Http.openConnection",
        "around a.B              | r.txt:1: add the target, as in Http.openConnection",
        "method a.B X.m          | r.txt:1: remove the target X.m",
        "trace a.B               | r.txt:1: unknown kind trace: use wrap, replace, bracket, around, method or never",
        "wrap                    | r.txt:1: expected KIND CLASS#METHOD(TYPES) TARGET, as in: wrap java.net.URL#openConnection() Http.openConnection",
      })
  void errorsSayWhatToChange(String line, String message) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, () -> rules(line)).getMessage());
  }
}
