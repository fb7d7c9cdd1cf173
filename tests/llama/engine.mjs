// llama.cpp with one context, told what to do: a JSON object a line on standard input, one in answer to each on
// standard output. The binding of the prebuilt package is called as it is: what it does to files is llama.cpp's
// own llama_state_seq_save_file and _load_file, which llama-server's slots use as well.
//
//   node engine.mjs MODEL CONTEXT_TOKENS THREADS
//
//   {"op": "evaluate", "tokens": [...]}   appends to the sequence
//   {"op": "generate", "token": T, "count": N}   the most likely N tokens after T   -> tokens, first_ms
//   {"op": "save", "path": P}             -> bytes
//   {"op": "restore", "path": P}          -> count and digest of its tokens, or missing: true if the name was not there
//   {"op": "clear"}                       empties the sequence, as a restore that fails does
//
// Every answer has ms, the time that the call took, or error.
import {createHash} from "node:crypto";
import {createRequire} from "node:module";
import path from "node:path";
import readline from "node:readline";

const BATCH_TOKENS = 512;
const LOG_ERROR = 2;
const SEQUENCE = 0;
const LOG_BOUND_MS = 2000;

const [modelPath, contextTokens, threads] = process.argv.slice(2);

let log = [];

async function loadBinding() {
    const packages = createRequire(path.join(process.cwd(), "package.json"));
    const {getBinsDir} = await import(packages.resolve("@node-llama-cpp/linux-x64"));
    const folder = path.join(getBinsDir().binsDir, "linux-x64");
    const binding = packages(path.join(folder, "llama-addon.node"));
    binding.markLoaded();
    binding.setLogger((level, text) => log.push(text.trim()));
    binding.setLoggerLogLevel(LOG_ERROR);
    binding.loadBackends();
    if (binding.getGpuType() == null) binding.loadBackends(folder);
    await binding.init();
    return binding;
}

class Engine {
    static async start() {
        const binding = await loadBinding();
        const engine = new Engine();
        engine.model = new binding.AddonModel(modelPath, {addonExports: binding, gpuLayers: 0, useMmap: true});
        if (!await engine.model.init()) throw new Error(`${modelPath}: not loaded: ${log.join("; ")}`);
        engine.context = new binding.AddonContext(engine.model, {
            contextSize: Number(contextTokens), batchSize: BATCH_TOKENS, sequences: 1, threads: Number(threads),
            flashAttention: true
        });
        if (!await engine.context.init()) throw new Error(`no context: ${log.join("; ")}`);
        engine.sampler = new binding.AddonSampler(engine.model);
        engine.sampler.applyConfig({temperature: 0});
        engine.tokens = [];
        return engine;
    }

    async decode(tokens, wantNext) {
        this.context.initBatch(tokens.length);
        const places = this.context.addToBatch(SEQUENCE, this.tokens.length, Uint32Array.from(tokens),
            Uint32Array.from(wantNext ? [tokens.length - 1] : []));
        await this.context.decodeBatch();
        this.tokens.push(...tokens);
        return wantNext ? await this.context.sampleToken(places[0], this.sampler) : null;
    }

    async evaluate({tokens}) {
        for (let start = 0; start < tokens.length; start += BATCH_TOKENS)
            await this.decode(tokens.slice(start, start + BATCH_TOKENS), false);
        return {};
    }

    async generate({token, count}) {
        const start = performance.now();
        const tokens = [];
        let firstMs = 0;
        while (tokens.length < count) {
            token = await this.decode([token], true);
            tokens.push(token);
            firstMs ||= performance.now() - start;
        }
        return {tokens, first_ms: firstMs};
    }

    async save({path}) {
        return {bytes: await this.context.saveSequenceStateToFile(path, SEQUENCE, Uint32Array.from(this.tokens))};
    }

    async restore({path}) {
        this.tokens = [];
        try {
            this.tokens = Array.from(
                await this.context.loadSequenceStateFromFile(path, SEQUENCE, Number(contextTokens)));
        } catch (error) {
            this.clear();
            if (/No such file/.test(await lastLog())) return {missing: true};
            throw error;
        }
        return {count: this.tokens.length, digest: digest(this.tokens)};
    }

    clear() {
        this.context.disposeSequence(SEQUENCE);
        this.tokens = [];
        return {};
    }
}

function digest(tokens) {
    return createHash("sha256").update(Uint32Array.from(tokens)).digest("hex");
}

// llama.cpp gives its reason to the log only, which arrives on a thread of its own.
async function lastLog() {
    const bound = performance.now() + LOG_BOUND_MS;
    while (log.length === 0 && performance.now() < bound) await new Promise((done) => setTimeout(done, 1));
    return log.join("; ");
}

async function answer(engine, request) {
    log = [];
    const start = performance.now();
    try {
        const result = await engine[request.op](request);
        return {ms: performance.now() - start, ...result};
    } catch (error) {
        return {error: `${error.message}: ${await lastLog()}`};
    }
}

const engine = await Engine.start();
process.stdout.write('{"ready": true}\n');
for await (const line of readline.createInterface({input: process.stdin}))
    process.stdout.write(JSON.stringify(await answer(engine, JSON.parse(line))) + "\n");
process.exit(0);
