import io.github.sibyltrace.agent.classify.Classifier;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Arrays;

/** Classifies packages, for a comparison with the classifier in Go. */
class Classify {
  /** Arguments: the command and the class path of the application. Input: lines of URL, tab, package. */
  public static void main(String[] args) throws Exception {
    Classifier c = new Classifier(args[0], Arrays.asList(args[1].split(File.pathSeparator)));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] f = line.split("\t", 2);
      String features = String.join(";", c.features(f[0], f[1])).replace('\t', '=');
      System.out.println(line + "\t" + Math.round(1000 * c.logOdds(f[0], f[1])) + "\t" + c.isOwn(f[1] + ".X", f[0]) + "\t" + features);
    }
  }
}
