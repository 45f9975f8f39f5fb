// Runs the model on zeros and prints the shapes of its outputs. Needs the package Microsoft.ML.OnnxRuntime.
// Not run by the tests of pyops.
using System;
using System.Linq;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

using var options = new SessionOptions();
options.RegisterCustomOpLibrary("@LIBRARY@");
using var session = new InferenceSession("@MODEL@", options);

var inputs = new[]
{
@INPUTS@
};
using var results = session.Run(inputs);
foreach (var result in results)
{
    Console.WriteLine($"{result.Name}: {result.ElementType}");
}
